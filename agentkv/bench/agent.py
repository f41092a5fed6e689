"""The agent of the benchmark: asks, waits for its tool, and asks again.

It drives the engine with token ids by the runtime's own parts (``Chain``, ``Ledger``, ``Follower``, ``Tenure``)
and not through a graph. A model with random weights calls no tool, a small one does not call it exactly so often, and
generations of unequal length cannot be compared; here each is ``output_tokens`` long by ``min_tokens``.

Where the engine admits, an agent declares what it will hold at its end, exactly; its anchor is not leased on its
own, since as long as any agent lives the anchor is part of that one's chain.
"""

from contextlib import aclosing

import anyio

from agentkv.bench.stage import Stage
from agentkv.bench.turn import Turn
from agentkv.bench.workload import ChainPlan
from agentkv.chain import Chain, Segment, SegmentKind
from agentkv.engines import Delta, GenerateRequest, Usage
from agentkv.errors import EngineError
from agentkv.report import Ask
from agentkv.runtime.follower import Follower
from agentkv.runtime.state import Tip
from agentkv.runtime.tenure import Tenure

__all__ = ("BenchAgent",)

NAME = "bench"


class BenchAgent:
    """One agent of a repetition."""

    def __init__(self, stage: Stage, plan: ChainPlan) -> None:
        self._stage, self._plan = stage, plan
        self._clock = stage.engine.clock
        self._block = stage.engine.info.block_size
        self._id = f"{stage.salt}/{plan.number}"
        self._ledger = stage.ledger(self._id)
        self._tenure = Tenure(stage.engine, self._id, stage.salt, stage.happened)
        self._follower = Follower(
            stage.engine, stage.kv, self._ledger, self._tenure, self._id, stage.salt, stage.happened
        )

    async def run(self) -> None:
        """Arrive when the plan says, wait for a slot, work to the end."""
        await self._clock.sleep(self._plan.starts_at)
        arrived = self._clock.now()
        async with self._stage.slot(), anyio.create_task_group() as group:
            if self._stage.mode.follow:
                group.start_soon(self._follower.run)
            self._stage.heartbeat.join(self._tenure)
            shared = self._plan.shape.shared_tokens // self._block
            await self._tenure.admit(-(-self._plan.end_tokens // self._block), f"{self._stage.salt}/anchor", shared)
            await self._work(arrived)
            group.cancel_scope.cancel()
            self._stage.heartbeat.part(self._tenure)
            await self._leave()
        self._stage.done(self._clock.now() - arrived)

    async def _leave(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._tenure.leave()

    async def _work(self, arrived: float) -> None:
        held = self._clock.now() - arrived
        chain, ready_at = self._prompt(), arrived
        known = self._plan.shape.shared_tokens
        for number in range(len(self._plan.tools) + 1):
            chain = await self._generate(chain, number, ready_at, held, known)
            held = 0.0
            if number < len(self._plan.tools):
                known, chain = await self._use_tool(chain, number)
                ready_at = self._clock.now()

    def _prompt(self) -> Chain:
        chain = _extend(Chain.empty(), "anchor", self._plan.anchor())
        for turn, ids in enumerate(self._plan.history()):
            chain = _extend(chain, "assistant" if turn % 2 else "user", ids)
        return chain

    async def _use_tool(self, chain: Chain, call: int) -> tuple[int, Chain]:
        """The chain with the result in it, and how much of that was known before the result's last part."""
        known, pieces = len(chain), self._plan.pieces(call)
        await self._tenure.waiting(self._stage.tool_times.expected((NAME,)))
        for piece in pieces:
            if self._stage.mode.follow:
                self._follower.follow((Tip(agent=NAME, chain=chain),))
            await self._clock.sleep(self._plan.tools[call].seconds / len(pieces))
            known, chain = len(chain), _extend(chain, "tool_result", piece)
        self._stage.tool_times.add(NAME, self._plan.tools[call].seconds)
        return known, chain

    async def _generate(self, chain: Chain, number: int, ready_at: float, held: float, known: int) -> Chain:
        adopted = await self._follower.adopt(NAME) if self._stage.mode.follow else False
        keys = chain.block_keys(self._block)
        ask = Ask(
            node=NAME,
            visit=number,
            agent=NAME,
            prompt=len(chain),
            known=known,
            keys=keys,
            predicted=self._ledger.predict(keys, len(chain)),
            adopted=adopted,
        )
        request = self._request(chain, number)
        sent_at = self._clock.now()
        ids, first_at, usage = await self._stream(request)
        after = _extend(chain, "assistant", tuple(ids))
        # The last generated token never has KV: it is fed to the model by the next request, if at all.
        self._ledger.generated(ask, usage, after.block_keys(self._block)[: (len(after) - 1) // self._block])
        self._stage.turns.append(
            Turn(
                chain=self._plan.number,
                number=number,
                ready_at=ready_at,
                held_s=held,
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

    def _request(self, chain: Chain, number: int) -> GenerateRequest:
        length = self._plan.shape.output_tokens
        return GenerateRequest(
            request_id=f"{self._id}/{number}",
            token_ids=chain.ids(),
            max_tokens=length,
            min_tokens=length,
            cache_salt=self._stage.salt,
            reuse=self._stage.mode.reuse,
            tag=f"{self._id}/{number}",
            directive=self._tenure.generation(NAME, resume=number > 0),
        )

    async def _stream(self, request: GenerateRequest) -> tuple[list[int], float, Usage]:
        ids: list[int] = []
        first_at, last = 0.0, None
        async with aclosing(self._stage.engine.generate(request)) as deltas:
            async for last in deltas:
                if not ids:
                    first_at = self._clock.now()
                ids.extend(last.token_ids)
        usage = _usage(request, last, len(ids))
        self._tenure.granted(NAME, last.grant if last else None)
        return ids, first_at, usage


def _usage(request: GenerateRequest, last: Delta | None, generated: int) -> Usage:
    if last is None or last.usage is None:
        raise EngineError(f"request {request.request_id!r}: the engine ended it without a result")
    if generated != request.max_tokens:
        raise EngineError(
            f"request {request.request_id!r}: {generated} tokens came where {request.max_tokens} were forced; "
            "modes cannot be compared on this engine"
        )
    return last.usage


def _extend(chain: Chain, kind: SegmentKind, ids: tuple[int, ...]) -> Chain:
    return chain.extend(Segment(kind=kind, label=NAME, ids=ids)) if ids else chain
