"""The agent of the benchmark: asks, waits for its tool, and asks again.

It drives the engine with token ids by the runtime's own parts (``Chain``, ``Ledger``, ``Follower``, ``Tenure``)
and not through a graph. A model with random weights calls no tool, a small one does not call it exactly so often, and
generations of unequal length cannot be compared; here each is as long as its plan says, by ``min_tokens``, or says what
was recorded, by ``forced``.

Where the engine admits, an agent declares what it will hold at its end, exactly; its anchor is not leased on its
own, since as long as any agent lives the anchor is part of that one's chain.
"""

from contextlib import aclosing, suppress
from functools import reduce

import anyio
from attrs import frozen

from agentkv.bench.stage import Stage
from agentkv.bench.turn import Source, Task, Turn
from agentkv.bench.workload import AgentPlan, Output, Wait
from agentkv.chain import Chain, Segment, SegmentKind
from agentkv.engines import Delta, GenerateRequest, Usage
from agentkv.errors import EngineError, EngineUnavailable
from agentkv.report import Ask
from agentkv.runtime.follower import Follower
from agentkv.runtime.state import Tip
from agentkv.runtime.tenure import Tenure

__all__ = ("BenchAgent",)

NAME = "bench"


class BenchAgent:
    """One agent of a repetition."""

    def __init__(self, stage: Stage, plan: AgentPlan) -> None:
        self._stage, self._plan = stage, plan
        self._clock = stage.engine.clock
        self._block = stage.engine.info.block_size
        self._id = f"{stage.salt}/{plan.number}"
        self._ledger = stage.ledger(self._id)
        self._tenure = Tenure(stage.engine, self._id, stage.salt, stage.happened)
        self._follower = Follower(
            stage.engine, stage.kv, self._ledger, self._tenure, self._id, stage.salt, stage.happened, pace=stage.pace
        )

    async def run(self) -> None:
        """Arrive when the plan says, wait for a slot, work to the end."""
        if self._plan.spawned_by is not None:
            await self._stage.spoken(*self._plan.spawned_by).wait()
        await self._clock.sleep(self._plan.starts_at)
        arrived = self._stage.ready(self._plan.number, 0, "start")
        async with self._stage.slot(), anyio.create_task_group() as group:
            if self._stage.mode.follow:
                group.start_soon(self._follower.run)
            self._stage.heartbeat.join(self._tenure)
            try:
                await self._admit()
                await self._work(arrived)
            finally:
                group.cancel_scope.cancel()
                self._stage.heartbeat.part(self._tenure)
                await self._leave()
        self._stage.done(Task(self._plan.number, arrived, self._clock.now()))

    async def _admit(self) -> None:
        anchor, shared = f"{self._stage.salt}/{self._plan.group}", self._plan.anchor_tokens // self._block
        first = sum(len(segment.ids) for segment in self._plan.prompt()) + self._plan.output(0).tokens
        blocks, held = (-(-tokens // self._block) for tokens in (self._plan.end_tokens, first))
        await self._tenure.admit(blocks, anchor, shared, held=held)

    async def _leave(self) -> None:
        # An engine that is gone has said so to the request that found it gone.
        with anyio.CancelScope(shield=True), suppress(EngineUnavailable):
            await self._tenure.leave()

    async def _work(self, arrived: float) -> None:
        held = self._clock.now() - arrived
        chain = reduce(Chain.extend, self._plan.prompt(), Chain.empty())
        moment = _Moment(ready_at=arrived, held=held, known=self._plan.anchor_tokens)
        waits = self._plan.waits
        for number in range(len(waits) + 1):
            chain = await self._generate(chain, number, moment)
            self._stage.spoken(self._plan.number, number).set()
            if number < len(waits):
                chain, moment = await self._wait(chain, number, waits[number])

    async def _wait(self, chain: Chain, number: int, wait: Wait) -> tuple[Chain, "_Moment"]:
        """The chain with what came in it, and how much of that was known before the last part."""
        known, diverged_at = len(chain), None
        await self._tenure.waiting(self._stage.tool_times.expected((wait.name,)))
        for arrival in self._plan.arrivals(number):
            # What is certain at once is followed together with what it is certain beside.
            if self._stage.mode.follow and arrival.seconds > 0:
                self._follower.follow((Tip(agent=NAME, chain=chain),))
            await self._clock.sleep(arrival.seconds)
            if arrival.keep is not None:
                chain, diverged_at = _cut(chain, arrival.keep), arrival.keep
            known, chain = len(chain), _extend(chain, "tool_result" if wait.source == "tool" else "user", arrival.ids)
        self._stage.tool_times.add(wait.name, wait.seconds)
        ready_at = self._stage.ready(self._plan.number, number + 1, wait.source)
        return chain, _Moment(ready_at=ready_at, known=known, diverged_at=diverged_at, source=wait.source)

    async def _generate(self, chain: Chain, number: int, moment: "_Moment") -> Chain:
        adopted = await self._follower.adopt(NAME) if self._stage.mode.follow else False
        keys = chain.block_keys(self._block)
        ask = Ask(
            node=NAME,
            visit=number,
            agent=NAME,
            prompt=len(chain),
            known=moment.known,
            keys=keys,
            predicted=self._ledger.predict(keys, len(chain)),
            adopted=adopted,
            diverged_at=moment.diverged_at,
        )
        output = self._plan.output(number)
        request = self._request(chain, number, output)
        await self._stage.send(self._plan.number, number)
        sent_at = self._clock.now()
        ids, first_at, usage = await self._stream(request, number, len(chain) - ask.predicted)
        self._stage.steps.prompt(self._plan.number, number, sent_at=sent_at, tokens=usage.prompt, cached=usage.cached)
        after = _extend(chain, "assistant", tuple(ids))
        # The last generated token never has KV: it is fed to the model by the next request, if at all.
        self._ledger.generated(ask, usage, after.block_keys(self._block)[: (len(after) - 1) // self._block])
        self._stage.turned(
            Turn(
                chain=self._plan.number,
                number=number,
                source=moment.source,
                ready_at=moment.ready_at,
                held_s=moment.held,
                sent_at=sent_at,
                first_at=first_at,
                done_at=self._clock.now(),
                prompt=usage.prompt,
                cached=usage.cached,
                generated=usage.generated,
                queue_s=usage.queue_s,
                prefill_s=usage.prefill_s,
            )
        )
        return after

    def _request(self, chain: Chain, number: int, output: Output) -> GenerateRequest:
        return GenerateRequest(
            request_id=f"{self._id}/{number}",
            token_ids=chain.ids(),
            max_tokens=output.tokens,
            min_tokens=output.tokens,
            forced=output.forced,
            cache_salt=self._stage.salt,
            reuse=self._stage.mode.reuse,
            tag=f"{self._id}/{number}",
            directive=self._tenure.generation(NAME, resume=number > 0),
        )

    async def _stream(self, request: GenerateRequest, number: int, tokens: int) -> tuple[list[int], float, Usage]:
        ids: list[int] = []
        first_at, last = 0.0, None
        with self._stage.pace.generation(tokens) as generating:
            async with aclosing(self._stage.engine.generate(request)) as deltas:
                async for last in deltas:
                    if not ids:
                        first_at = self._stage.first_token(self._plan.number, number)
                        generating.first()
                    ids.extend(last.token_ids)
                    self._stage.steps.arrived(self._clock.now(), self._plan.number, number, len(last.token_ids))
            generating.done(len(ids))
        usage = _usage(request, last, ids)
        self._tenure.granted(NAME, last.grant if last else None)
        return ids, first_at, usage


@frozen(kw_only=True)
class _Moment:
    """Why and since when a generation can be asked for, and how much of its prompt was known before that."""

    ready_at: float
    known: int
    held: float = 0.0
    diverged_at: int | None = None
    source: Source = "start"


def _usage(request: GenerateRequest, last: Delta | None, ids: list[int]) -> Usage:
    if last is None or last.usage is None:
        raise EngineError(f"request {request.request_id!r}: the engine ended it without a result")
    if len(ids) != request.max_tokens:
        raise EngineError(
            f"request {request.request_id!r}: {len(ids)} tokens came where {request.max_tokens} were forced; "
            "modes cannot be compared on this engine"
        )
    if request.forced is not None and tuple(ids) != request.forced:
        at = next(i for i, pair in enumerate(zip(ids, request.forced, strict=True)) if pair[0] != pair[1])
        raise EngineError(
            f"request {request.request_id!r}: token {at} is {ids[at]} and not {request.forced[at]} as forced; "
            "the trace cannot be replayed on this engine"
        )
    return last.usage


def _cut(chain: Chain, keep: int) -> Chain:
    """The first ``keep`` tokens of a chain, as one that goes on otherwise from there."""
    return _extend(Chain.empty(), "template", tuple(chain.ids()[:keep]))


def _extend(chain: Chain, kind: SegmentKind, ids: tuple[int, ...]) -> Chain:
    return chain.extend(Segment(kind=kind, label=NAME, ids=ids)) if ids else chain
