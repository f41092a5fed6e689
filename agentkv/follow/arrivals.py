"""How often somebody asks an engine for a generation."""

from collections import deque
from math import inf

__all__ = ("Arrivals",)

# Swept over 4, 8 and 16: the p95 of others' TTFT beside 30 agents with short tools on the simulated H200 (18 draws) is
# 0.93, 0.94 and 0.94 times that without prefetches. Few follow a change, more are not moved by two at once.
REMEMBERED = 8


class Arrivals:
    """When the last few generations were asked for, in clock seconds."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, now: float) -> None:
        """A generation is asked for."""
        self._at.append(now)

    def gap(self, now: float) -> float:
        """Mean seconds between the last few up to ``now``; without end where there was none before the last."""
        if len(self._at) < 2:
            return inf
        # The time since the last counts, or a burst would be one for ever; the gap that it is part of is not over.
        return (now - self._at[0]) / (len(self._at) - 1)
