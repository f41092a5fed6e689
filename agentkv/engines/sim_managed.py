"""The simulated scheduler with KV managed on purpose: the hooks of the vLLM plugin over the same policy."""

from collections.abc import Callable, Iterable, Sequence

from agentkv.engines.sim_cache import Block, BlockPool
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step
from agentkv.errors import EngineError
from agentkv.kv import KVPolicy, LiveRequests, Rank, Tier, WaitingOrder, rank_of

__all__ = ("ManagedScheduler",)


class ManagedScheduler(Scheduler):
    """A ``Scheduler`` that asks ``policy`` what gives way, who goes first and who may start.

    ``now`` reads engine seconds. ``dropped`` collects prefetches that were given up, with the reason; whoever
    drives the scheduler tells their callers and clears it. Held requests wait for the admission of their run
    outside of the queue.
    """

    def __init__(
        self,
        pool: BlockPool,
        policy: KVPolicy,
        now: Callable[[], float],
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
    ) -> None:
        super().__init__(
            pool, block_size=block_size, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs
        )
        self.policy = policy
        self.requests: LiveRequests[SimRequest] = LiveRequests(policy)
        self.dropped: list[tuple[SimRequest, str]] = []
        # They wait for KV from host memory, and nothing waits behind them.
        self.loading: dict[str, SimRequest] = {}
        self._now = now
        self._shares = policy.shares
        self._divided = False
        self._order = WaitingOrder(policy.settings.max_overtakes)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.requests.held or request_id in self.loading or super().__contains__(request_id)

    # Requests come and go

    def add(self, request: SimRequest) -> None:
        """Queue a request, hold it until its run is admitted, or drop a prefetch that must not start."""
        name = request.request_id
        if name in self:
            raise EngineError(f"request id {name!r} is in use; ids are unique per engine")
        if request.directive is not None:
            if request.directive.kind == "prefill" and self._is_away(request):
                reason: str | None = "its chain is in host memory"
                self.policy.drop_prefetch(request.directive, name, str(reason), self._now())
            else:
                reason = self.requests.enter(name, request, request.directive, self._now())
            if reason is not None:
                request.alive = False
                self.dropped.append((request, reason))
                return
        if not self.requests.hold(name, request):
            self._enqueue(request)

    def abort(self, request_id: str) -> bool:
        """Drop a request at once, as ``Scheduler.abort``; it takes no lease."""
        held = self.requests.held.get(request_id) or self.loading.pop(request_id, None)
        directive = self.requests.leave(request_id)
        if directive is not None:
            request = held or self.running.get(request_id) or self.waiting[request_id]
            self.policy.work.ended(request_id, prompt=request.prompt, computed=request.computed, answered=False)
            self.policy.abort(directive, request_id, self._now())
        if held is None:
            return super().abort(request_id)
        held.alive = False
        return True

    def release_admitted(self) -> bool:
        """Queue the held requests whose run has been admitted; whether there were any."""
        admitted = self.requests.admitted()
        for request in admitted:
            self._enqueue(request)
        return bool(admitted)

    def _enqueue(self, request: SimRequest) -> None:
        from_the_end = reversed(self.waiting.values())
        overtaken = self._order.overtaken(from_the_end, self._rank(request), rank_of=self._rank, name=_name)
        self.waiting[request.request_id] = request
        for passed in reversed(overtaken):
            self.waiting.move_to_end(passed.request_id)

    @staticmethod
    def _rank(request: SimRequest) -> Rank:
        return rank_of(request.directive, preempted=request.cached is not None)

    def _finish(self, request: SimRequest) -> None:
        directive = self.requests.leave(request.request_id)
        if directive is not None:
            full = request.full_blocks(self._block_size)
            ids, digests = [block.id for block in full], [block.key or b"" for block in full]
            self.policy.work.ended(request.request_id, prompt=request.prompt, computed=request.computed, answered=True)
            request.grant = self.policy.finish(directive, request.request_id, ids, digests, self._now())
        super()._finish(request)

    # A step

    def schedule(self) -> Step:
        """Decide the next step, see ``Scheduler.schedule``; prefetches come last and share ``prefetch_step`` tokens."""
        self.policy.settle(self._now())
        self.release_admitted()
        self._look_for_copies()
        while True:
            self.requests.in_step.clear()
            self._share_out()
            step = super().schedule()
            if self.requests.directives:
                rows = ((request.request_id, tokens) for request, tokens in step.rows)
                self._shares.planned(step, rows, self._now())
            # A prefetch that found no room stood before others: without it they may start.
            if not self._end_doomed() or step.rows:
                return step

    def complete(self, step: Step) -> list[SimRequest]:
        """Apply a step that has run, see ``Scheduler.complete``, and take note of how long it took."""
        self._shares.ended(step, self._now())
        return super().complete(step)

    def _look_for_copies(self) -> None:
        """Take out of the queue who waits for KV from host memory, and put back who need not wait any more."""
        tier = self.policy.tier
        if tier is None:
            return
        tier.tick(self._now())
        for name, request in list(self.loading.items()):
            if not self._wants(tier, request):
                del self.loading[name]
                self._enqueue(request)
        for name, request in list(self.waiting.items()):
            if self._wants(tier, request):
                self.loading[name] = self.waiting.pop(name)

    def _must_wait(self, request: SimRequest) -> bool:
        # Asked again: who went before it may have taken free blocks that it was to build on.
        tier = self.policy.tier
        if tier is None or not self._wants(tier, request):
            return False
        self.loading[request.request_id] = self.waiting.pop(request.request_id)
        return True

    def _wants(self, tier: Tier, request: SimRequest) -> bool:
        directive = request.directive
        if directive is None or directive.kind == "prefill":
            return False
        return tier.wanted(
            request.request_id,
            request.keys(self._block_size),
            len(request.find_cached(self.pool, self._block_size)),
            self._now(),
            owner=directive.owner,
            lease=directive.lease,
            order=directive.order,
        )

    def _is_away(self, request: SimRequest) -> bool:
        return self.policy.tier is not None and self.policy.tier.away(request.keys(self._block_size))

    def _share_out(self) -> None:
        prefetches = self.requests.prefetches
        waiting = [name for name in self.waiting if name not in prefetches]
        begun = [request for name, request in self.running.items() if name not in prefetches]
        prefilling = [request.request_id for request in begun if request.in_prefill]
        # As it stands here, whoever is given up in this step: the plugin has told vLLM by then.
        self._divided = bool(self.requests.directives)
        if self._divided:
            self._shares.open(
                waiting=waiting,
                prefilling=prefilling,
                decoding=len(begun) - len(prefilling),
                is_resume=self.requests.is_resume,
                step_tokens=self._max_num_batched_tokens,
                now=self._now(),
            )
        running = [name for name in self.running if name in prefetches]
        for name in running:
            self.running[name] = self.running.pop(name)
        if running and waiting and len(self.running) >= self._max_num_seqs:
            self._give_up(running[-1], "its place in the batch was needed")

    def _share(self, request: SimRequest, tokens: int) -> int:
        name = request.request_id
        if self.requests.is_prefetch(name):
            given = self._shares.prefetch(tokens)
            if given:
                self.requests.in_step.add(name)
            return given
        cold = tokens > 1 and self._divided and not self.requests.is_resume(name)
        return self._shares.cold(tokens) if cold else tokens

    def _fits(self, request: SimRequest, hits: list[Block]) -> bool:
        tier = self.policy.tier
        cold = request.cached is None and not self.requests.is_resume(request.request_id)
        if tier is not None and cold and tier.claimed:
            return False
        fits = super()._fits(request, hits)
        if not fits and self.requests.is_prefetch(request.request_id):
            self.requests.doomed[request.request_id] = "no room that a prefetch may take"
        return fits

    def _take(self, request: SimRequest, count: int) -> None:
        self.policy.displace_speculative(count, request.request_id, self._now(), worthless=self.pool.worthless)
        super()._take(request, count)

    def _give_way(self, request: SimRequest, missing: int, hits: Sequence[Block]) -> bool:
        name = request.request_id
        freed = self.policy.make_room(
            missing,
            name,
            self._now(),
            prefetch=self.requests.is_prefetch(name),
            protect=frozenset(block.id for block in hits),
            drop_prefetches=lambda wanted: self._drop_prefetches(wanted, name),
            may_wait=name in self.waiting,
        )
        return freed > 0

    def _drop_prefetches(self, missing: int, for_whom: str) -> int:
        before = self.pool.free
        for victim in self.requests.droppable(for_whom):
            self._give_up(victim, f"room for {for_whom}")
            if self.pool.free - before >= missing:
                break
        return self.pool.free - before

    def _start(self, request: SimRequest, hits: list[Block]) -> None:
        super()._start(request, hits)
        if request.directive is not None:
            self.policy.work.started(request.request_id, request.computed)

    def _preempt(self, step: Step, request: SimRequest) -> None:
        self.policy.work.preempted(request.request_id, request.computed)
        super()._preempt(step, request)
        if self.requests.is_prefetch(request.request_id):
            self.requests.doomed[request.request_id] = "preempted"

    def _end_doomed(self) -> bool:
        doomed, self.requests.doomed = self.requests.doomed, {}
        for name, reason in doomed.items():
            self._give_up(name, reason)
        return bool(doomed)

    def _give_up(self, name: str, reason: str) -> None:
        request, directive = self.requests.prefetches.get(name), self.requests.directives.get(name)
        if request is None or directive is None:
            return
        self.abort(name)
        self.policy.drop_prefetch(directive, name, reason, self._now())
        self.dropped.append((request, reason))

    def _further_users(self) -> Iterable[Iterable[Block]]:
        # However many leases name a block, together they hold one reference on it.
        named = {block for lease in self.policy.leases.table for block in lease.blocks}
        assert len(named) == self.policy.leases.table.held, "leases and their count of blocks disagree"
        moving = self.policy.tier.mover.held_blocks() if self.policy.tier is not None else ()
        return [[self.pool[block] for block in named], [self.pool[block] for block in moving]]


def _name(request: SimRequest) -> str:
    return request.request_id
