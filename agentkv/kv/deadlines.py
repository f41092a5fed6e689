"""Ends of life that are moved often and reached seldom."""

import heapq

__all__ = ("Deadlines",)


class Deadlines:
    """Names by the engine second at which each ends.

    Moving an end further off, which renewals do all the time, costs a dictionary entry; the heap learns of it when
    the former end is reached.
    """

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._queued: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._ends)

    def set(self, name: str, end: float) -> None:
        """``name`` ends at ``end``, whatever was said before."""
        self._ends[name] = end
        if end < self._queued.get(name, float("inf")):
            self._queue(name, end)

    def drop(self, name: str) -> None:
        """Forget ``name``."""
        self._ends.pop(name, None)
        self._queued.pop(name, None)

    def clear(self) -> None:
        """Forget every name."""
        self._ends.clear()
        self._queued.clear()
        self._heap.clear()

    def due(self, now: float) -> list[str]:
        """The names whose end is ``now`` or gone by; each stays due until it is moved or dropped."""
        due: dict[str, float] = {}
        while (end := self.next) is not None and end <= now:
            _, name = heapq.heappop(self._heap)
            del self._queued[name]
            due[name] = end
        for name, end in due.items():
            self._queue(name, end)
        return list(due)

    @property
    def next(self) -> float | None:
        """The earliest end; None where nothing ends."""
        while self._heap:
            queued, name = self._heap[0]
            if self._queued.get(name) != queued:
                heapq.heappop(self._heap)
            elif self._ends[name] > queued:
                heapq.heappop(self._heap)
                self._queue(name, self._ends[name])
            else:
                return queued
        return None

    def _queue(self, name: str, end: float) -> None:
        self._queued[name] = end
        heapq.heappush(self._heap, (end, name))
