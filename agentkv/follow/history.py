"""What is learnt from runs: how long tools take, how large runs grow."""

import statistics
from collections import deque
from collections.abc import Iterable

from agentkv.follow.recent import Recent

__all__ = ("ToolTimes", "WorkingSets")

# Enough for a median that one outlier does not move, few enough to follow a change.
REMEMBERED = 32
# A cyclic graph without history is taken to go round this often.
ROUNDS_GUESSED = 4
# A result without a bound of its own is taken to be this long, in tokens.
RESULT_GUESSED = 512


class ToolTimes:
    """Durations of tools, in seconds, by tool name."""

    def __init__(self) -> None:
        self._seen = Recent[str, deque[float]](lambda: deque(maxlen=REMEMBERED))

    def add(self, tool: str, seconds: float) -> None:
        """Note that a call took ``seconds``."""
        self._seen.of(tool).append(seconds)

    def expected(self, tools: Iterable[str]) -> float | None:
        """Seconds until all of ``tools`` that start now are done: the longest median; None if none was seen."""
        medians = [statistics.median(self._seen.of(tool)) for tool in tools if tool in self._seen]
        return max(medians, default=None)


class WorkingSets:
    """How many tokens runs of a graph held at their largest, by the graph's digest."""

    def __init__(self) -> None:
        self._seen = Recent[str, deque[int]](lambda: deque(maxlen=REMEMBERED))

    def add(self, graph: str, grown: int) -> bool:
        """Note how many tokens a finished run grew beyond its first prompt; whether that changes ``expected``."""
        seen = self._seen.of(graph)
        before = max(seen, default=None)
        seen.append(grown)
        return max(seen) != before

    def expected(self, graph: str, prompt: int, growth_per_round: int, most: int, *, branches: int = 0) -> int:
        """Tokens that a run with a first prompt of ``prompt`` will hold at its largest, ``most`` a chain at the most.

        The largest growth remembered; without history, a few rounds of what one round can add, and one for each of
        as many ``branches`` as it may have at once.
        """
        seen = self._seen.of(graph) if graph in self._seen else ()
        growth = max(seen) if seen else (ROUNDS_GUESSED + branches) * growth_per_round
        return min(prompt + growth, most * (1 + branches))
