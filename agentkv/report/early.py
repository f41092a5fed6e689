"""How much of a recorded prompt was known before its last result came, so that it could be prefilled ahead."""

from collections.abc import Iterator, Sequence

from attrs import frozen

__all__ = ("LEAST_TIME", "Early", "RecordedResult", "Repeats", "there_early")

#: What becomes known later than so many seconds before the ask leaves no time for a step of prefilling.
LEAST_TIME = 0.05


@frozen(kw_only=True)
class Early:
    """Tokens of a prompt that came ``behind`` what the engine had of it: 0 where nothing ran before it.

    In whole blocks, ``certain`` were known in time; ``guessable`` are the rest, if all results gave what an equal call
    had given. ``followed``: the run prefilled ahead, so that what of results arrived in pieces is in ``certain``, and
    what was guessed right; else that was not recorded.
    """

    behind: int = 0
    certain: int = 0
    guessable: int = 0
    followed: bool = False

    @classmethod
    def of(cls, prompt: int, had: int, certain: int, *, repeated: bool, block_size: int, followed: bool) -> "Early":
        """Of a prompt of which the engine ``had`` the KV of so many tokens, and ``certain`` more were known in time."""
        known = _whole(had, min(certain, prompt - had), block_size)
        # The last token is always computed.
        rest = _whole(had, prompt - had - 1, block_size) - known
        return cls(behind=prompt - had, certain=known, guessable=max(0, rest) if repeated else 0, followed=followed)


def _whole(had: int, more: int, block_size: int) -> int:
    """Tokens in the blocks that ``more`` of them complete behind ``had``."""
    return max(0, (had + more) // block_size - had // block_size) * block_size


@frozen(kw_only=True)
class RecordedResult:
    """What a ``call`` (name, arguments) gave, and when it did; ``at`` in seconds, None if that was not recorded."""

    call: tuple[str, str]
    text: str
    at: float | None


def there_early(results: Sequence[RecordedResult]) -> tuple[int, int] | None:
    """Characters of ``results``, in call order up to the first that is missing: in time, and when the last one came.

    None where the order of several was not recorded.
    """
    if len(results) < 2:
        return 0, 0
    times = [result.at for result in results if result.at is not None]
    if len(times) < len(results):
        return None
    last = max(times)
    # What a journal calls known stops at the one that came last; of several at that time, at the last of them.
    final = max(place for place, time in enumerate(times) if time == last)
    in_time = next(place for place, time in enumerate(times) if time > last - LEAST_TIME)
    lengths = [len(result.text) for result in results]
    return sum(lengths[:in_time]), sum(lengths[:final])


class Repeats:
    """What calls gave before, as results of ``read_only`` tools are guessed by."""

    def __init__(self) -> None:
        self._gave: dict[tuple[str, str], str] = {}

    def all_in(self, results: Sequence[RecordedResult]) -> bool:
        """Whether there are results and each is what an equal call gave last; remembers them."""
        right = [*self._judged(results)]
        return bool(right) and all(right)

    def _judged(self, results: Sequence[RecordedResult]) -> Iterator[bool]:
        for result in results:
            yield self._gave.get(result.call) == result.text
            self._gave[result.call] = result.text
