"""Who is worth being believed: how often guesses at a tool's results were right."""

from attrs import frozen

from agentkv.common_prefix import common_prefix
from agentkv.follow.memo import PredictedResult, Source
from agentkv.follow.recent import Recent

__all__ = ("Trust", "Trusts")

# As long as at least so much of a guesser's text is right its guesses are prefilled: what is right must pay for what is
# wrong, for the room of both, and for what they cost those who decode meanwhile.
LEAST_RIGHT = 0.25
# What is seen counts for so much of itself at each further guess, so that a tool that changes is noticed.
FADE = 0.8


@frozen
class _Record:
    """Of ``guessed`` characters so many were ``right``; recent ones count for more."""

    guessed: float = 0.0
    right: float = 0.0


UNKNOWN = _Record()


class Trust:
    """What came of guesses, by tool and source. A guesser that was not judged yet is believed.

    Guesses are judged whether they were prefilled or not, so that one who becomes right is believed again.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[str, Source], _Record] = {}

    def enough(self, tool: str, source: Source) -> bool:
        """Whether guesses of ``source`` at results of ``tool`` are worth prefilling."""
        record = self._records.get((tool, source), UNKNOWN)
        return record.right >= LEAST_RIGHT * record.guessed

    def judge(self, tool: str, guessed: PredictedResult, text: str) -> None:
        """Note that ``text`` is what the call gave."""
        before = self._records.get((tool, guessed.source), UNKNOWN)
        same = common_prefix(guessed.text, text)
        # One more than the text: its end, which is all that there is to an empty one.
        self._records[tool, guessed.source] = _Record(
            guessed=FADE * before.guessed + len(guessed.text) + 1,
            right=FADE * before.right + same + (guessed.text == text),
        )


class Trusts:
    """A record for each tenant; tenants are named as records name them."""

    def __init__(self) -> None:
        self._kept = Recent[str, Trust](Trust)

    def of(self, owner: str) -> Trust:
        """That of tenant ``owner``."""
        return self._kept.of(owner)
