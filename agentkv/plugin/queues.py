"""vLLM's waiting queue in the order of work."""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.request_queue import FCFSRequestQueue

from agentkv.kv import Rank, WaitingOrder

__all__ = ("RankedQueue",)


class RankedQueue(FCFSRequestQueue):
    """vLLM's first-come-first-served queue, except that a request enters where ``WaitingOrder`` says.

    Without directives every rank is equal and the queue is vLLM's own.
    """

    def __init__(self, rank: Callable[[Any], Rank], max_overtakes: int) -> None:
        super().__init__()
        self._rank = rank
        self._order = WaitingOrder(max_overtakes)

    def add_request(self, request: Any) -> None:
        """Insert the request behind all of its rank, as far forward as it may go."""
        place = self._order.place(self, self._rank(request), rank_of=self._rank, name=_name)
        self.insert(place, request)


def _name(request: Any) -> str:
    return str(request.request_id)
