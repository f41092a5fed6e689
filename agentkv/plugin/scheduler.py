"""vLLM's scheduler with KV managed on purpose; chosen by ``scheduler_cls="agentkv.plugin.scheduler.AgentScheduler"``.

Settings come from ``additional_config={"agentkv": {...}}`` with the fields of ``agentkv.kv.PolicySettings``. A
request is managed if ``SamplingParams.extra_args["agentkv"]`` holds a directive (its wire form, JSON string or
object); its report comes back in ``RequestOutput.kv_transfer_params["agentkv"]``::

    {"v": 1, "lease": token or null, "handle": {...} or null, "blocks": held, "offered": full blocks computed,
     "reason": why fewer or none}      or      {"v": 1, "rejected": why the directive was not honoured}

A prefetch that is given up ends with ``finish_reason`` "abort" and the reason in its report. A request without a
directive is a cold prompt that takes no lease. ``agentkv.plugin.utility`` has the operations on leases and runs.
"""

from functools import partial
from secrets import token_urlsafe
from typing import Any
from uuid import uuid4

import vllm
from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import RequestStatus

from agentkv.errors import EngineStartError
from agentkv.kv import KVGroup, KVPolicy, PolicySettings, Rank, rank_of, spec_bytes_per_token
from agentkv.plugin import utility
from agentkv.plugin.holder import PoolHolder
from agentkv.plugin.manager import EXTRA_ARG, KVManager
from agentkv.plugin.port import SchedulerPort, open_port, tier_slots
from agentkv.plugin.probe import probe
from agentkv.plugin.queues import RankedQueue
from agentkv.plugin.room import RoomMaker
from agentkv.plugin.settings import settings_of
from agentkv.plugin.start_report import reporting

__all__ = ("AgentScheduler", "SyncAgentScheduler", "is_synchronous")

logger = init_logger("agentkv.plugin")


class SyncAgentScheduler(Scheduler):
    """The hooks, over vLLM's synchronous scheduler. ``kv`` is None where vLLM runs alone; ``kv_off`` says why."""

    kv: KVManager | None = None
    kv_off: str = ""
    _port: SchedulerPort | None = None
    _counts_held = True

    @reporting()
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The manager's: who is to be told so is told when it has been turned off, too.
        self._dropped: list[tuple[int, Any]] = []
        utility.install()
        settings = settings_of(self.vllm_config)
        found = probe(self, vllm.__version__)
        if not found.problems:
            self._start(settings)
            return
        self.kv_off = "; ".join(found.problems)
        if settings.strict:
            raise EngineStartError(f"agentkv cannot manage this engine's KV: {self.kv_off}; strict=False starts it")
        logger.warning("agentkv: leases: off, vLLM schedules alone: %s", self.kv_off)

    def _start(self, settings: PolicySettings) -> None:
        pool = self.kv_cache_manager.block_pool
        holder = PoolHolder(pool)
        slots, why = tier_slots(self, settings)
        if why and settings.strict:
            raise EngineStartError(f"agentkv: no second tier: {why}; strict=False starts without it")
        group = self.kv_cache_config.kv_cache_groups[0]
        spec = group.kv_cache_spec
        page = KVGroup(layers=len(group.layer_names), page_bytes=spec.page_size_bytes, block_size=spec.block_size)
        policy = KVPolicy(
            settings,
            holder=holder,
            pool_blocks=holder.pool_blocks,
            block_size=self.block_size,
            engine_id=uuid4().hex,
            mint=lambda: token_urlsafe(18),
            bytes_per_block=spec_bytes_per_token([page]) * self.block_size,
            host=holder if slots else None,
            slots=slots,
        )
        fcfs = self.policy == SchedulingPolicy.FCFS
        chunked = self.scheduler_config.enable_chunked_prefill
        kv = self.kv = KVManager(policy, holder, self._turn_off, fcfs=fcfs, chunked=chunked)
        kv.tier_off, self._dropped = why, kv.dropped
        self._port = open_port(self, kv)
        self._room = RoomMaker(self, kv, self._drop_prefetch)
        if fcfs:
            self.waiting = RankedQueue(self._rank, settings.max_overtakes)
            if hasattr(self, "skipped_waiting"):
                self.skipped_waiting = RankedQueue(self._rank, settings.max_overtakes)

    # Requests come and go

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """As vLLM's, after a new request's directive was read; a prefetch that must not start is answered at once."""
        if self.kv is not None and request.request_id not in self.requests and self.kv.guard(self.kv.register, request):
            return
        super().add_request(request, *args, **kwargs)

    def _enqueue_waiting_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self.kv is None or not self.kv.directives or not self.kv.guard(self.kv.hold, request):
            super()._enqueue_waiting_request(request, *args, **kwargs)

    def release_admitted(self) -> None:
        """Queue the held requests whose run has been admitted."""
        if self.kv is not None and self.kv.requests.held:
            for request in self.kv.guard(self.kv.requests.admitted) or ():
                super()._enqueue_waiting_request(request)

    def _connector_finished(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        delay, params = super()._connector_finished(request, *args, **kwargs)
        report = self.kv.guard(self._finish, request) if self.kv is not None else None
        return delay, ({**(params or {}), EXTRA_ARG: report} if report is not None else params)

    def _finish(self, request: Any) -> dict[str, Any] | None:
        if self.kv is None or not (self.kv.directives or self.kv.rejected):
            return None
        blocks = self.kv_cache_manager.get_blocks(request.request_id).blocks
        aborted = request.status in (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        return self.kv.finish(request, blocks[0] if blocks else (), aborted=aborted)

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's; an abort may let others in."""
        ended = super().finish_requests(*args, **kwargs)
        self.release_admitted()
        return ended

    # A step

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's; prefetches come last and share ``prefetch_step`` tokens."""
        kv = self.kv
        if kv is None or not kv.busy:
            return super().schedule(*args, **kwargs)
        self._room.install()
        try:
            kv.guard(self._before_step)
            step = super().schedule(*args, **kwargs)
            kv.guard(kv.planned, step)
            if self._port is not None:
                kv.guard(self._port.planned, step)
            return step
        finally:
            self._room.remove()
            self.need_mamba_block_aligned_split = False

    def _before_step(self) -> None:
        kv = self._managed()
        kv.settle()
        kv.settle_tier()
        self.release_admitted()
        kv.requests.in_step.clear()
        for name, reason in kv.requests.doomed.items():
            self._drop_prefetch(name, reason)
        kv.requests.doomed.clear()
        if kv.directives:
            self._share_out(kv)

    def _share_out(self, kv: KVManager) -> None:
        """Divide the step's tokens between those running, before vLLM gives all of them to whoever is first."""
        real_work = [request.request_id for request in self._queued() if self._is_real_work(request)]
        kv.open_shares(real_work, self.running, self.max_num_scheduled_tokens)
        # Both loops of vLLM's schedule() ask this method how much of a chunk to compute, if told that they must.
        self.need_mamba_block_aligned_split = bool(kv.requests.prefetches) or kv.shares.limits_cold
        if not kv.requests.prefetches:
            return
        self.running.sort(key=lambda request: kv.requests.is_prefetch(request.request_id))
        if real_work and len(self.running) >= self.max_num_running_reqs:
            running = [r.request_id for r in self.running if kv.requests.is_prefetch(r.request_id)]
            if running:
                self._drop_prefetch(running[-1], "its place in the batch was needed")

    def _mamba_block_aligned_split(self, request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> int:
        capped = None if self.kv is None else self.kv.guard(self.kv.cap, request, num_new_tokens)
        return num_new_tokens if capped is None else capped

    def _queued(self) -> list[Any]:
        others = getattr(self, "kv_holding_waiting", None) or getattr(self, "skipped_waiting", None) or ()
        return [*others, *self.waiting]

    def _is_real_work(self, request: Any) -> bool:
        ready = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return ready and not self._managed().requests.is_prefetch(request.request_id)

    def _select_waiting_queue_for_scheduling(self) -> Any:
        """The queue whose head stands higher, where vLLM keeps requests that wait for a grammar in a second one."""
        first, other = self.waiting, self.skipped_waiting
        both = len(first) > 0 and len(other) > 0
        if both and self.kv is not None and self.kv.directives and isinstance(first, RankedQueue):
            return min(first, other, key=lambda queue: self._rank(queue[0]))
        return super()._select_waiting_queue_for_scheduling()

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self.kv is not None:
            self.kv.guard(self.kv.policy.work.preempted, request.request_id, request.num_computed_tokens)
        super()._preempt_request(request, *args, **kwargs)
        if self.kv is not None and self.kv.requests.is_prefetch(request.request_id):
            # It stands in a queue that the caller is working on: it is ended before the next step.
            self.kv.requests.doomed[request.request_id] = "preempted"

    def _drop_prefetch(self, request_id: str, reason: str) -> None:
        kv = self._managed()
        request, directive = kv.requests.prefetches.get(request_id), kv.directives.get(request_id)
        if request is None or directive is None:
            return
        super().finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        kv.policy.drop_prefetch(directive, request_id, reason, kv.now())
        kv.answer_dropped(request, reason)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's, with the answers to prefetches that were given up."""
        # Errors in the first may turn the management off, and ``self.kv`` to None.
        if (kv := self.kv) is not None:
            step = args[0] if args else kwargs["scheduler_output"]
            kv.guard(kv.ended, step)
            if self._port is not None:
                kv.guard(self._port.answered, step)
        outputs = super().update_from_output(*args, **kwargs)
        if self._dropped:
            for client, output in self._dropped:
                outputs.setdefault(client, EngineCoreOutputs()).outputs.append(output)
            self._dropped.clear()
        return outputs

    # Counts and resets

    def get_request_counts(self) -> Any:
        """Requests running and waiting, those that wait for admission included."""
        running, waiting = super().get_request_counts()
        held = len(self.kv.requests.held) if self.kv is not None and self._counts_held else 0
        return running, waiting + held

    def get_num_unfinished_requests(self) -> int:
        """Requests that a step could advance: an engine with nothing but held ones must not spin."""
        self._counts_held = False
        try:
            return int(super().get_num_unfinished_requests())
        finally:
            self._counts_held = True

    def has_finished_requests(self) -> bool:
        """Whether another step has something to tell workers or clients."""
        if self._dropped or self.finished_req_ids:
            return True
        if self.kv is None or not self.kv.requests.held:
            return bool(super().has_finished_requests())
        return self.connector is not None and len(self.requests) > sum(self.get_request_counts())

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's; leases are dropped first, and handles issued before are stale from here on."""
        empty = partial(super().reset_prefix_cache, *args, **kwargs)
        return empty() if self.kv is None else self.kv.reset(empty)

    def _turn_off(self, reason: str) -> None:
        """Go on as vLLM's own scheduler; whatever was held or leased is let go of."""
        kv, self.kv, self.kv_off = self._managed(), None, reason
        logger.error("agentkv: leases: off, vLLM schedules alone from here on: %s", reason)
        for request in kv.requests.held.values():
            super()._enqueue_waiting_request(request)
        table = kv.policy.leases.table
        if kv.policy.tier is not None:
            kv.policy.tier.reset()
        for lease in table:
            table.drop(lease, dead=False)

    def _rank(self, request: Any) -> Rank:
        directive = self.kv.directives.get(request.request_id) if self.kv is not None else None
        return rank_of(directive, preempted=request.status == RequestStatus.PREEMPTED)

    def _managed(self) -> KVManager:
        assert self.kv is not None
        return self.kv


class AgentScheduler(SyncAgentScheduler, AsyncScheduler):
    """The hooks over vLLM's asynchronous scheduler, or ``synchronous`` where the engine is synchronous."""

    synchronous: type[SyncAgentScheduler] = SyncAgentScheduler

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The scheduler that fits the engine's configuration."""
        return cls.synchronous(*args, **kwargs) if is_synchronous(args, kwargs) else super().__new__(cls)


def is_synchronous(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether these arguments of a scheduler are those of an engine without asynchronous scheduling."""
    config = kwargs.get("vllm_config", args[0] if args else None)
    return config is not None and not config.scheduler_config.async_scheduling
