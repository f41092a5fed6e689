"""The simulated engine: vLLM's cache and batching on a virtual clock, with a script for a model."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Self, Unpack

from attrs import evolve

from agentkv.engines.base import Delta, EngineInfo, GenerateRequest, PrefillRequest, Receipt
from agentkv.engines.clock import Timer, VirtualClock
from agentkv.engines.sim_info import MODEL_PATH, counters, describe, usage_of
from agentkv.engines.sim_kv import make_scheduler, operate
from agentkv.engines.sim_machine import MachineOptions, machine_with
from agentkv.engines.sim_managed import ManagedScheduler
from agentkv.engines.sim_output import Mailbox, Responder, ScriptedOutput
from agentkv.engines.sim_preset import find_preset
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_steps import StepLoop
from agentkv.engines.sim_tier import make_copies
from agentkv.errors import EngineError, EngineStartError, EngineUnavailable
from agentkv.kv import PolicySettings

__all__ = ("MODEL_PATH", "SimEngine")


class SimEngine:
    """An ``Engine`` that computes nothing and takes no real time.

    Use it as ``async with SimEngine(respond) as engine``. Blocks, hits, evictions, batches and preemptions are
    those that vLLM would have (see ``Scheduler``); a step takes what the preset's cost model says. Equal
    requests in equal order give equal timelines. ``stream_interval`` is how many tokens make a delta after
    the first one; ``clock`` lets several engines share one time. ``kv`` puts leases, one eviction order, order
    of work and admission into the scheduler, as the plugin does in vLLM; None leaves it stock. ``respond`` is
    called when a generation is first iterated, and what it raises reaches the caller.

    ``preset`` is a name, or a file that ends in ``.json`` (``agentkv bench calibrate`` writes them). Raises
    ``EngineStartError`` for an unknown preset and for options that contradict each other.
    """

    def __init__(
        self,
        respond: Responder,
        *,
        preset: str = "cpu",
        stream_interval: int = 1,
        clock: VirtualClock | None = None,
        kv: PolicySettings | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        if stream_interval < 1:
            raise EngineStartError(f"stream_interval={stream_interval} must be at least 1")
        machine = machine_with(find_preset(preset), options)
        self._respond = respond
        self._machine = machine
        self._clock = clock or VirtualClock()
        self._stream_interval = stream_interval
        self._info = describe(machine, kv)
        self._scheduler = make_scheduler(
            kv,
            self._info,
            self._clock.now,
            max_num_batched_tokens=machine.max_num_batched_tokens,
            max_num_seqs=machine.max_num_seqs,
        )
        self._mailboxes: dict[str, Mailbox] = {}
        self._loop = StepLoop(
            self._scheduler,
            self._clock,
            machine,
            planned=self._after_planning,
            deliver=self._deliver,
            died=lambda error: self._die(f"died of {error!r}"),
        )
        self._copies = make_copies(self._scheduler, machine, self._clock, landed=self._loop.wake)
        self._settling: Timer | None = None
        self._dead: str | None = None
        self._started = False

    @property
    def info(self) -> EngineInfo:
        """See ``EngineInfo``; the simulator knows all of it."""
        return self._info

    @property
    def clock(self) -> VirtualClock:
        """The simulated time that steps take."""
        return self._clock

    @property
    def started(self) -> bool:
        return self._started and self._dead is None

    async def __aenter__(self) -> Self:
        self._check_alive()
        self._clock.check_loop()
        self._started = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """See ``Engine.generate``; close the generator (``contextlib.aclosing``) when leaving it early."""
        self._check_request(request)
        answer = self._respond(request) if request.forced is None else request.forced
        output = answer if isinstance(answer, ScriptedOutput) else ScriptedOutput(answer)
        output = output.cut(request, min(request.max_tokens, self._machine.max_model_len - len(request.token_ids)))
        entry, mailbox = self._admit(request, output, reuse=request.reuse)
        try:
            while True:
                delta = await self._receive(mailbox)
                if delta.finish is not None and output.error is not None:
                    yield evolve(delta, finish=None, usage=None)
                    raise EngineError(output.error)
                yield delta
                if delta.finish is not None:
                    return
        finally:
            self._drop(entry)

    async def prefill(self, request: PrefillRequest) -> Receipt:
        """See ``Engine.prefill``. As in vLLM this is a generation of one token, which nobody gets."""
        self._check_request(request)
        sent_at = self._clock.now()
        entry, mailbox = self._admit(request, ScriptedOutput((0,), finish="length"), reuse=True)
        try:
            delta = await self._receive(mailbox)
        finally:
            self._drop(entry)
        return Receipt(
            prompt=entry.prompt, cached=entry.cached or 0, sent_at=sent_at, done_at=delta.at, grant=entry.grant
        )

    async def kv(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Engine.kv``."""
        self._check_alive()
        answer = operate(self._scheduler, self._info, operation, payload, self._clock.now())
        self._info = evolve(self._info, epoch=answer.get("epoch", self._info.epoch))
        self._let_in()
        return answer

    async def stats(self) -> dict[str, Any]:
        """Counters of the engine; see ``Engine.stats``.

        ``prompt_tokens`` and ``cached_tokens`` are of the requests that were started, ``computed_tokens`` all
        that steps computed of prompts, repeated and aborted work included. Beyond the contract:
        ``generated_tokens``, ``steps``, ``evictions``, ``preemptions`` since start, ``pool_blocks``,
        ``pool_used`` (the share that requests and leases hold), ``free_blocks`` (cached ones included;
        ``reusable_blocks`` of them can be hit) and ``cached_blocks`` now. Where KV is managed also the counters of
        ``KVPolicy.stats`` and ``held_requests``, those that wait for their run's admission, which ``waiting`` includes.
        """
        self._let_in()
        return counters(self._scheduler, self._loop.steps)

    async def aclose(self) -> None:
        """Abort what is in the engine: its callers get ``EngineUnavailable``."""
        self._die("was closed")

    def check_integrity(self) -> None:
        """Assert that blocks, free queue, cache, requests and leases agree with each other."""
        self._scheduler.check_integrity()

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise EngineUnavailable(f"the simulated engine {self._dead}; start a new one")

    def _check_request(self, request: GenerateRequest | PrefillRequest) -> None:
        self._check_alive()
        longest = self._machine.max_model_len
        if not 0 < len(request.token_ids) < longest:
            raise EngineError(
                f"request {request.request_id!r} has a prompt of {len(request.token_ids)} tokens; it must have 1 to "
                f"{longest - 1} (max_model_len is {longest}, the pool has {self._machine.pool_blocks} blocks of "
                f"{self._machine.block_size})"
            )
        if request.directive is not None:
            request.directive.as_wire()
        if isinstance(request, GenerateRequest) and request.max_tokens < 1:
            raise EngineError(f"request {request.request_id!r} has max_tokens={request.max_tokens}; ask for 1 at least")

    def _admit(
        self, request: GenerateRequest | PrefillRequest, output: ScriptedOutput, *, reuse: bool
    ) -> tuple[SimRequest, Mailbox]:
        entry = SimRequest(
            request.request_id,
            request.token_ids,
            output.token_ids,
            output.finish,
            block_size=self._machine.block_size,
            salt=request.cache_salt,
            reuse=reuse,
            directive=request.directive,
        )
        self._scheduler.add(entry)
        entry.queued_at = self._clock.now()
        mailbox = self._mailboxes[request.request_id] = Mailbox()
        self._tell_dropped()
        self._loop.wake()
        self._let_in()
        return entry, mailbox

    async def _receive(self, mailbox: Mailbox) -> Delta:
        # A tool may ask the engine from inside its busy() body; time must run while it waits for the answer.
        with self._clock.waiting():
            return await mailbox.get()

    def _drop(self, entry: SimRequest) -> None:
        if entry.alive:
            self._scheduler.abort(entry.request_id)
            del self._mailboxes[entry.request_id]

    def _let_in(self) -> None:
        # An idle engine does not step, so those held for admission wait for a timer: the next run that is overdue.
        scheduler = self._scheduler
        if not isinstance(scheduler, ManagedScheduler):
            return
        scheduler.policy.settle(self._clock.now())
        if scheduler.policy.tier is not None:
            scheduler.policy.tier.tick(self._clock.now())
            self._pump()
        if scheduler.release_admitted():
            self._loop.wake()
        expiry = scheduler.policy.admission.next_expiry
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if scheduler.requests.held and expiry is not None:
            self._settling = self._clock.call_at(expiry, lambda: self._loop.guard(self._let_in))

    def _after_planning(self) -> None:
        self._pump()
        self._tell_dropped()

    def _pump(self) -> None:
        if self._copies is not None:
            self._copies.pump()

    def _tell_dropped(self) -> None:
        if not isinstance(self._scheduler, ManagedScheduler):
            return
        for entry, reason in self._scheduler.dropped:
            mailbox = self._mailboxes.pop(entry.request_id, None)
            if mailbox is not None:
                mailbox.put(EngineError(f"the engine gave up prefetch {entry.request_id!r}: {reason}"))
        self._scheduler.dropped.clear()

    def _deliver(self, advanced: list[SimRequest]) -> None:
        arrives = self._clock.now() + self._machine.delivery_s
        ready = [each for entry in advanced if (each := self._delta(entry, arrives)) is not None]
        if not self._machine.delivery_s:
            _put(ready)
        elif ready:
            self._clock.call_at(arrives, lambda: _put(ready))

    def _delta(self, entry: SimRequest, at: float) -> tuple[Mailbox, Delta] | None:
        """What the caller gets after a step, if anything."""
        if entry.first_at is None:
            entry.first_at = self._clock.now()
        if not entry.finished and (entry.generated - 1) % self._stream_interval:
            return None
        mailbox = self._mailboxes[entry.request_id]
        token_ids = tuple(entry.output[mailbox.sent : entry.generated])
        mailbox.sent = entry.generated
        if not entry.finished:
            return mailbox, Delta(token_ids=token_ids, at=at)
        del self._mailboxes[entry.request_id]
        usage = usage_of(entry)
        return mailbox, Delta(token_ids=token_ids, at=at, finish=entry.finish, usage=usage, grant=entry.grant)

    def _die(self, how: str) -> None:
        if self._dead is None:
            self._dead = how
        self._loop.stop()
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if self._copies is not None:
            self._copies.stop()
        for request_id, mailbox in self._mailboxes.items():
            self._scheduler.abort(request_id)
            mailbox.put(EngineUnavailable(f"the simulated engine {how} while it served request {request_id!r}"))
        self._mailboxes.clear()


def _put(ready: list[tuple[Mailbox, Delta]]) -> None:
    for mailbox, delta in ready:
        mailbox.put(delta)
