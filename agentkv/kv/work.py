"""The order of work: resumes before cold prompts, prefetches last, and nobody passed for ever."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from agentkv.kv.directive import Directive

__all__ = ("COLD", "Rank", "WaitingOrder", "rank_of")

T = TypeVar("T")

#: Standing of a waiting request, lower is sooner: kind of work, then its own order within that.
Rank = tuple[int, int]

PREEMPTED: Rank = (0, 0)
RESUME = 1
COLD: Rank = (2, 0)
PREFETCH = 3
#: Counts of overtaken requests from which on it is asked whose are not wanted any more.
MANY = 1024


def rank_of(directive: Directive | None, *, preempted: bool) -> Rank:
    """A preempted request has begun and goes first; one without a directive is a cold prompt."""
    if preempted:
        return PREEMPTED
    if directive is None:
        return COLD
    if directive.kind == "prefill":
        return PREFETCH, directive.order
    return (RESUME, directive.order) if directive.resume else (COLD[0], max(0, directive.order))


class WaitingOrder:
    """Says where a request enters a queue, and counts who was overtaken by it.

    A waiting request other than a prefetch is overtaken at most ``max_overtakes`` times. Among equal ranks the
    order is that of arrival, so without directives it is first come, first served.
    """

    def __init__(self, max_overtakes: int) -> None:
        self._max_overtakes = max_overtakes
        self._overtaken: dict[str, int] = {}
        self._most = MANY

    def place(self, queue: Sequence[T], rank: Rank, *, rank_of: Callable[[T], Rank], name: Callable[[T], str]) -> int:
        """Index in ``queue`` at which a request of ``rank`` enters; it overtakes all from there on."""
        return len(queue) - len(self.overtaken(reversed(queue), rank, rank_of=rank_of, name=name))

    def overtaken(
        self, from_the_end: Iterable[T], rank: Rank, *, rank_of: Callable[[T], Rank], name: Callable[[T], str]
    ) -> list[T]:
        """Whom a request of ``rank`` overtakes that enters a queue, read from its end; the last one first."""
        passed: list[T] = []
        stays: list[T] = []
        queue = iter(from_the_end)
        for waiting in queue:
            its = name(waiting)
            if not self._lets_pass(rank_of(waiting), its, rank):
                stays.append(waiting)
                break
            self._overtaken[its] = self._overtaken.get(its, 0) + 1
            passed.append(waiting)
        if not (passed or stays) or len(self._overtaken) > self._most:
            self._forget_all_but(map(name, (*passed, *stays, *queue)))
        return passed

    def _forget_all_but(self, waiting: Iterable[str]) -> None:
        # Looked at only when at least half of the counts may be of requests that wait no more.
        self._overtaken = {name: self._overtaken[name] for name in waiting if name in self._overtaken}
        self._most = max(MANY, 2 * len(self._overtaken))

    def _lets_pass(self, its: Rank, name: str, rank: Rank) -> bool:
        if its <= rank:
            return False
        return its[0] == PREFETCH or self._overtaken.get(name, 0) < self._max_overtakes
