"""How long an engine's steps take, where one may be planned before the last one has ended."""

from collections import deque
from typing import Generic, TypeVar

from attrs import frozen

__all__ = ("StepTimer",)

T = TypeVar("T")


@frozen
class _Planned(Generic[T]):
    step: object
    at: float
    work: T


class StepTimer(Generic[T]):
    """Times steps in engine seconds, each with its ``work``; they end in the order in which they were planned."""

    def __init__(self) -> None:
        self._planned: deque[_Planned[T]] = deque()
        self._ended = float("-inf")

    def planned(self, step: object, work: T, now: float) -> None:
        """``step`` goes to the workers."""
        self._planned.append(_Planned(step, now, work))

    def ended(self, step: object, now: float) -> tuple[T, float] | None:
        """The work of ``step``, which has been computed, and its seconds; None if it was not planned here.

        Those planned before it that never ended are forgotten.
        """
        # A step that was queued behind another began when that one had ended.
        before, self._ended = self._ended, now
        if all(each.step is not step for each in self._planned):
            return None
        while (each := self._planned.popleft()).step is not step:
            pass
        return each.work, now - max(each.at, before)
