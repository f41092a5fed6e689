"""The order of work: resumes before cold prompts, prefetches last, and nobody passed for ever."""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.request import RequestStatus

from agentkv.kv import Directive

__all__ = ("COLD", "Rank", "RankedQueue", "rank_of")

#: Standing of a request in the queue, lower is sooner: kind of work, then its own order within that.
Rank = tuple[int, int]

PREEMPTED: Rank = (0, 0)
COLD: Rank = (2, 0)
PREFETCH = 3


def rank_of(request: Any, directive: Directive | None) -> Rank:
    """A preempted request has begun and goes first; one without a directive is a cold prompt."""
    if request.status == RequestStatus.PREEMPTED:
        return PREEMPTED
    if directive is None:
        return COLD
    if directive.kind == "prefill":
        return PREFETCH, directive.order
    return (1, directive.order) if directive.resume else (2, max(0, directive.order))


class RankedQueue(FCFSRequestQueue):
    """vLLM's first-come-first-served queue, except that a request enters before those of a later rank.

    A waiting request other than a prefetch is overtaken at most ``max_overtakes`` times. Without directives
    every rank is equal and the queue is vLLM's own.
    """

    def __init__(self, rank: Callable[[Any], Rank], max_overtakes: int) -> None:
        super().__init__()
        self._rank = rank
        self._max_overtakes = max_overtakes
        self._overtaken: dict[str, int] = {}

    def add_request(self, request: Any) -> None:
        """Insert the request behind all of its rank, as far forward as it may go."""
        if len(self) == 0:
            self._overtaken.clear()
        rank = self._rank(request)
        place = len(self)
        while place > 0 and self._lets_pass(self[place - 1], rank):
            place -= 1
        for passed in list(self)[place:] if place < len(self) else ():
            self._overtaken[passed.request_id] = self._overtaken.get(passed.request_id, 0) + 1
        self.insert(place, request)

    def _lets_pass(self, waiting: Any, rank: Rank) -> bool:
        its = self._rank(waiting)
        if its <= rank:
            return False
        return its[0] == PREFETCH or self._overtaken.get(waiting.request_id, 0) < self._max_overtakes
