"""What a call will give, guessed from what calls gave before."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import frozen

from agentkv.follow.recent import Recent
from agentkv.tools import ToolCall

__all__ = ("Memo", "Memos", "PredictedResult", "Source")

Source = Literal["hook", "memo", "poll"]
CallKey = tuple[str, str]


@frozen
class PredictedResult:
    """A guess at a result's text. ``source``: a hook of the user's, the same call, or another call of the tool."""

    source: Source
    text: str


class Memo:
    """Results of read-only tools by tool and canonical arguments; ``most_bytes`` of text at the most.

    What was not asked for or renewed for longest is forgotten first. A result larger than the memo is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._results: OrderedDict[CallKey, str] = OrderedDict()
        self._latest: dict[str, CallKey] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._results)

    @property
    def size(self) -> int:
        """Bytes of text kept: keys and results in UTF-8."""
        return self._bytes

    def items(self) -> Iterator[tuple[CallKey, str]]:
        """Calls and their results, those that will be forgotten first in front."""
        yield from self._results.items()

    def remember(self, key: CallKey, text: str) -> None:
        """Keep ``text`` as the latest result of the call ``key``."""
        self._forget(key)
        if _size(key, text) > self._most_bytes:
            return
        self._results[key] = text
        self._bytes += _size(key, text)
        self._latest[key[0]] = key
        while self._bytes > self._most_bytes:
            self._forget(next(iter(self._results)))

    def predict(self, call: ToolCall) -> PredictedResult | None:
        """What ``call`` gave the last time; else what its tool gave the last time, for a status that is polled."""
        if (text := self._results.get(call.key)) is not None:
            self._results.move_to_end(call.key)
            return PredictedResult("memo", text)
        latest = self._latest.get(call.name)
        return None if latest is None else PredictedResult("poll", self._results[latest])

    def _forget(self, key: CallKey) -> None:
        text = self._results.pop(key, None)
        if text is not None:
            self._bytes -= _size(key, text)
        if self._latest.get(key[0]) == key:
            del self._latest[key[0]]


class Memos:
    """A memo for each agent of each tenant; tenants are named as records name them."""

    def __init__(self, most_bytes: int, kept: Mapping[tuple[str, str], Memo] | None = None) -> None:
        self._kept = Recent(lambda: Memo(most_bytes), kept)

    def of(self, owner: str, agent: str) -> Memo:
        """The memo of ``agent`` for tenant ``owner``."""
        return self._kept.of((owner, agent))

    def items(self) -> Iterator[tuple[tuple[str, str], Memo]]:
        """All of them, by tenant and agent."""
        yield from self._kept.items()


def _size(key: CallKey, text: str) -> int:
    return sum(len(part.encode("utf-8", "surrogatepass")) for part in (*key, text))
