"""How much of an engine's time cold prompts take."""

from collections.abc import Iterable

__all__ = ("ColdLoad",)

# Cold prompts over which the share is taken: by number and not by seconds, so that it means the same on any engine.
# Swept over 4, 8, 16 and 32: p95 of all TTFT of 100 chains with a pool for all (simulated H200, 8 draws)
# is 418, 418, 434 and 549 ms: the longer the memory, the later it is seen that all come at once.
PROMPTS = 8


class ColdLoad:
    """Owns the share of recent time that it takes to prefill the cold prompts which arrive. ``now`` is engine seconds.

    Recent is what the last few of them arrived in, the latest counting most, until now: where none comes any more, the
    share falls.
    """

    def __init__(self) -> None:
        self._busy = self._elapsed = 0.0
        self._then: float | None = None
        self._present: frozenset[str] = frozenset()
        self._seen = 0

    @property
    def share(self) -> float:
        """From 0 to about 1, since seconds are estimates; 0 until enough of them were seen to tell."""
        return self._busy / self._elapsed if self._seen >= PROMPTS and self._elapsed > 0 else 0.0

    def look(self, present: Iterable[str], now: float) -> None:
        """These cold prompts wait, or are in the middle of their prefill."""
        self._elapsed += 0.0 if self._then is None else now - self._then
        before, self._present, self._then = self._present, frozenset(present), now
        new = len(self._present - before)
        self._seen += new
        fades = (1 - 1 / PROMPTS) ** new
        self._busy *= fades
        self._elapsed *= fades

    def __contains__(self, request: str) -> bool:
        """Whether the request was there at the last look."""
        return request in self._present

    def computed(self, seconds: float) -> None:
        """So much of a step's time goes to tokens of theirs."""
        self._busy += seconds
