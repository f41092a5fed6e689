"""Continuous batching over a block pool, without time: what vLLM's scheduler would put into the next step.

Rules after ``vllm/v1/core/sched/scheduler.py`` with the ``fcfs`` policy: running requests first and in
order, then waiting ones as long as the token budget lasts; prompts are computed in chunks; a waiting request
starts only when its whole prompt finds room; a running one that finds none preempts the youngest.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from attrs import Factory, define

from agentkv.engines.sim_cache import Block, BlockPool
from agentkv.engines.sim_request import SimRequest
from agentkv.errors import EngineError

__all__ = ("Scheduler", "Step")


@define
class Step:
    """The work of one engine step: who computes how many tokens, and the sums that decide its duration.

    ``sampled`` are those of ``rows`` that get a token from it.
    """

    rows: list[tuple[SimRequest, int]] = Factory(list)
    sampled: list[SimRequest] = Factory(list)
    prefill_tokens: int = 0
    prefill_context: int = 0
    decode_seqs: int = 0
    context_tokens: int = 0
    preempted: int = 0


class Scheduler:
    """Requests in the engine, and their blocks.

    Call ``schedule()``, let the step's time pass, then ``complete(step)``; requests may be added and aborted
    in between. The next step may be scheduled before the last one is completed, as vLLM's asynchronous scheduler
    does; steps are completed in order. The sums count since the start: ``prompt_tokens`` and ``cached_tokens`` of
    the requests that were started, ``computed_tokens`` all prompt tokens that steps computed, repeated and aborted
    work included.
    """

    def __init__(self, pool: BlockPool, *, block_size: int, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        self.pool = pool
        self.running: dict[str, SimRequest] = {}
        self.waiting: OrderedDict[str, SimRequest] = OrderedDict()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.computed_tokens = 0
        self.generated_tokens = 0
        self.preemptions = 0
        self._block_size = block_size
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_num_seqs = max_num_seqs

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.running or request_id in self.waiting

    def add(self, request: SimRequest) -> None:
        """Queue a request. Raises ``EngineError`` for a request id in use."""
        if request.request_id in self:
            raise EngineError(f"request id {request.request_id!r} is in use; ids are unique per engine")
        self.waiting[request.request_id] = request

    def abort(self, request_id: str) -> bool:
        """Drop a request at once; what it computed stays cached. False where there is no such request."""
        request = self.running.pop(request_id, None) or self.waiting.pop(request_id, None)
        if request is None:
            return False
        request.alive = False
        request.give_up_blocks(self.pool)
        return True

    def schedule(self) -> Step:
        """Decide the next step and take the blocks it needs. A step without rows means that nothing is to do."""
        step = Step()
        budget = self._schedule_running(step, self._max_num_batched_tokens)
        if not step.preempted:
            self._schedule_waiting(step, budget)
        return step

    def complete(self, step: Step) -> list[SimRequest]:
        """Apply a step that has run: the requests that got one more token, finished ones freed."""
        advanced = []
        for request in step.sampled:
            if not request.alive:
                continue
            request.length += 1
            self.generated_tokens += 1
            # A block that a sampled token filled becomes findable now, less what the step in flight computes.
            in_flight = request.expected - request.length
            request.enter_full(self.pool, request.computed - in_flight, self._block_size)
            if request.finished:
                self._finish(request)
            advanced.append(request)
        return advanced

    def check_integrity(self) -> None:
        """Assert that pool and requests agree."""
        self.pool.check_integrity([*(request.blocks for request in self.running.values()), *self._further_users()])
        for request in self.running.values():
            assert request.computed <= len(request.blocks) * self._block_size
            assert request.computed <= request.expected
        assert not any(request.blocks for request in self.waiting.values()), "a waiting request holds blocks"

    def _further_users(self) -> Iterable[Iterable[Block]]:
        """The block lists of those who hold references beside running requests."""
        return ()

    def _schedule_running(self, step: Step, budget: int) -> int:
        for request in list(self.running.values()):
            if budget == 0:
                break
            if request.request_id not in self.running:
                continue
            missing = min(request.to_compute, budget)
            tokens = self._share(request, missing) if missing else 0
            if tokens == 0:
                continue
            if not self._make_room(step, request, tokens):
                break
            self._put(step, request, tokens)
            budget -= tokens
        return budget

    def _make_room(self, step: Step, request: SimRequest, tokens: int) -> bool:
        """Get the blocks for the next ``tokens``, at the cost of younger requests; False: it went itself."""
        missing = -(-(request.computed + tokens) // self._block_size) - len(request.blocks)
        if missing <= 0:
            return True
        while missing > self.pool.free:
            if self._give_way(request, missing - self.pool.free, ()):
                continue
            _, youngest = self.running.popitem()
            self._preempt(step, youngest)
            if youngest is request:
                return False
        self._take(request, missing)
        return True

    def _take(self, request: SimRequest, count: int) -> None:
        request.blocks.extend(self.pool.take(count))

    def _preempt(self, step: Step, request: SimRequest) -> None:
        request.give_up_blocks(self.pool)
        self.waiting[request.request_id] = request
        self.waiting.move_to_end(request.request_id, last=False)
        self.preemptions += 1
        step.preempted += 1

    def _schedule_waiting(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._max_num_seqs:
            request = next(iter(self.waiting.values()))
            if self._must_wait(request):
                continue
            hits = request.find_cached(self.pool, self._block_size)
            tokens = self._share(request, min(request.expected - len(hits) * self._block_size, budget))
            if tokens == 0 or not self._fits(request, hits):
                break
            self._start(request, hits)
            self._take(request, -(-tokens // self._block_size))
            self._put(step, request, tokens)
            budget -= tokens

    def _must_wait(self, request: SimRequest) -> bool:
        """Whether the request cannot start yet, and has been taken out of the queue for that."""
        return False

    def _fits(self, request: SimRequest, hits: list[Block]) -> bool:
        """Whether the whole request finds room beside its ``hits``."""
        while (missing := self._missing(request, hits)) > 0:
            if not self._give_way(request, missing, hits):
                return False
        return True

    def _missing(self, request: SimRequest, hits: list[Block]) -> int:
        # A hit that nobody uses sits in the free queue and leaves it when touched, so it costs a free block too.
        unused_hits = sum(block.refs == 0 for block in hits)
        return -(-request.length // self._block_size) - len(hits) + unused_hits - self.pool.free

    def _finish(self, request: SimRequest) -> None:
        self.abort(request.request_id)

    def _share(self, request: SimRequest, tokens: int) -> int:
        """How many of ``tokens`` the request may compute in this step."""
        return tokens

    def _give_way(self, request: SimRequest, missing: int, hits: Sequence[Block]) -> bool:
        """Whether blocks were freed for a request that lacks ``missing`` and builds on ``hits``."""
        return False

    def _start(self, request: SimRequest, hits: list[Block]) -> None:
        del self.waiting[request.request_id]
        self.running[request.request_id] = request
        self.pool.touch(hits)
        first_start = request.cached is None
        request.adopt(hits, self._block_size)
        if first_start:
            self.prompt_tokens += request.prompt
            self.cached_tokens += request.computed

    def _put(self, step: Step, request: SimRequest, tokens: int) -> None:
        request.enter_full(self.pool, request.computed + tokens, self._block_size)
        request.computed += tokens
        step.rows.append((request, tokens))
        if tokens > 1:
            step.prefill_tokens += tokens
            # Each attends to all before the chunk, and to half of the chunk on average.
            step.prefill_context += tokens * (request.computed - tokens) + tokens * tokens // 2
        else:
            # One token costs the same whether it was sampled or is what a cached prompt left over.
            step.decode_seqs += 1
            step.context_tokens += request.computed
        if tokens > 1 or request.expected == request.prompt:
            self.computed_tokens += tokens
        request.in_prefill = request.computed < request.expected
        if not request.in_prefill:
            request.expected += 1
            step.sampled.append(request)
