"""One chain of an agent on the engine: its requests, what it holds there, and who prefills it ahead.

It drives the engine with token ids by the runtime's own parts (``Chain``, ``Ledger``, ``Gate``, ``Follower``,
``Tenure``) and not through a graph. A model with random weights calls no tool, a small one does not call it exactly so
often, and generations of unequal length cannot be compared; here each is as long as its plan says, by ``min_tokens``,
or says what was recorded, by ``forced``.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress

import anyio
from attrs import frozen

from agentkv.bench.stage import Stage
from agentkv.bench.turn import Source, Turn
from agentkv.bench.workload import Output
from agentkv.chain import Chain, Segment, SegmentKind
from agentkv.engines import Delta, GenerateRequest, Usage
from agentkv.errors import EngineError, EngineUnavailable
from agentkv.graph.path import Path, place
from agentkv.report import Ask
from agentkv.runtime.follower import Follower
from agentkv.runtime.gate import Gate
from agentkv.runtime.state import Tip
from agentkv.runtime.tenure import Tenure

__all__ = ("NAME", "Lane", "Lanes", "Moment", "extend")

NAME = "bench"


@frozen(kw_only=True)
class Moment:
    """Why and since when a generation can be asked for, and how much of its prompt was known before that.

    ``resume``: its chain goes on from an earlier generation.
    """

    ready_at: float
    known: int
    resume: bool = True
    held: float = 0.0
    diverged_at: int | None = None
    source: Source = "start"


class Lanes:
    """What the lanes of one agent share: its books, its gate, and how many prefetches it may have in the engine.

    ``branching``: there is more than one lane.
    """

    def __init__(self, stage: Stage, agent: int, *, branching: bool) -> None:
        self.stage, self.agent, self.branching = stage, agent, branching
        self.id = f"{stage.salt}/{agent}"
        self.block = stage.engine.info.block_size
        self.ledger = stage.ledger(self.id)
        self.gate = Gate(self.ledger, self.block)
        self.prefetches = anyio.Semaphore(stage.kv.branch_prefetch_limit)

    def main(self) -> "Lane":
        """The agent's own."""
        return Lane(self, Tenure(self.stage.engine, self.id, self.stage.salt, self.stage.happened))


class Lane:
    """One chain's: the agent's, or with ``branch`` that of a branch, whose ``tenure`` is under the agent's."""

    def __init__(self, lanes: Lanes, tenure: Tenure, branch: Path = ()) -> None:
        stage = lanes.stage
        self._lanes, self._stage, self._branch, self.tenure = lanes, stage, branch, tenure
        self._ledger = lanes.ledger
        self._follower = Follower(
            stage.engine,
            stage.kv,
            lanes.ledger,
            tenure,
            lanes.id,
            stage.salt,
            stage.happened,
            pace=stage.pace,
            branch=branch,
            prefetches=lanes.prefetches,
        )

    def beside(self, branch: Path) -> "Lane":
        """The lane of a branch of this one's chain."""
        return Lane(self._lanes, self.tenure.inner(), branch)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While the body runs, chains can be followed and what is held is kept alive; then it is given back."""
        async with anyio.create_task_group() as group:
            if self._stage.mode.follow:
                group.start_soon(self._follower.run)
            self._stage.heartbeat.join(self.tenure)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                self._stage.heartbeat.part(self.tenure)
                # An engine that is gone has said so to the request that found it gone.
                with anyio.CancelScope(shield=True), suppress(EngineUnavailable):
                    await self.tenure.leave()

    def follow(self, chain: Chain) -> None:
        """Prefill ``chain`` ahead, in modes that do."""
        if self._stage.mode.follow:
            self._follower.follow((Tip(agent=NAME, chain=chain),))

    async def generate(
        self,
        chain: Chain,
        number: int,
        moment: Moment,
        output: Output,
        said: Callable[[Sequence[int]], None] = lambda _: None,
    ) -> Chain:
        """Ask for generation ``number`` of the agent; ``chain`` with what it said. ``said`` hears that as it comes.

        Raises ``EngineError`` where the engine gives something else than ``output``.
        """
        keys = chain.block_keys(self._lanes.block)
        async with self._entering(keys):
            adopted = await self._follower.adopt(NAME) if self._stage.mode.follow else False
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
                branch=place(self._branch),
                # Beside branches, what is computed here may be booked by another one before.
                fates=self._ledger.fates(keys) if self._lanes.branching else None,
            )
            request = self._request(chain, number, output, resume=moment.resume)
            return await self._ask(chain, number, moment, request, ask, said)

    def _entering(self, keys: Sequence[bytes]) -> AbstractAsyncContextManager[None]:
        # A client of a stock engine sends what it has to send.
        return self._lanes.gate.enter(keys) if self._stage.mode.managed else nullcontext()

    async def _ask(
        self,
        chain: Chain,
        number: int,
        moment: Moment,
        request: GenerateRequest,
        ask: Ask,
        said: Callable[[Sequence[int]], None],
    ) -> Chain:
        stage, agent = self._stage, self._lanes.agent
        await stage.send(agent, number)
        sent_at = stage.engine.clock.now()
        ids, first_at, usage = await self._stream(request, number, ask, said)
        stage.steps.prompt(agent, number, sent_at=sent_at, tokens=usage.prompt, cached=usage.cached)
        after = extend(chain, "assistant", tuple(ids))
        # The last generated token never has KV: it is fed to the model by the next request, if at all.
        self._ledger.generated(ask, usage, after.block_keys(self._lanes.block)[: (len(after) - 1) // self._lanes.block])
        stage.turned(
            Turn(
                chain=agent,
                number=number,
                source=moment.source,
                ready_at=moment.ready_at,
                held_s=moment.held,
                sent_at=sent_at,
                first_at=first_at,
                done_at=stage.engine.clock.now(),
                prompt=usage.prompt,
                cached=usage.cached,
                generated=usage.generated,
                queue_s=usage.queue_s,
                prefill_s=usage.prefill_s,
            )
        )
        return after

    def _request(self, chain: Chain, number: int, output: Output, *, resume: bool) -> GenerateRequest:
        name = f"{self._lanes.id}/{number}"
        return GenerateRequest(
            request_id=name,
            token_ids=chain.ids(),
            max_tokens=output.tokens,
            min_tokens=output.tokens,
            forced=output.forced,
            cache_salt=self._stage.salt,
            reuse=self._stage.mode.reuse,
            tag=name,
            directive=self.tenure.generation(NAME, resume=resume),
        )

    async def _stream(
        self, request: GenerateRequest, number: int, ask: Ask, said: Callable[[Sequence[int]], None]
    ) -> tuple[list[int], float, Usage]:
        stage, agent = self._stage, self._lanes.agent
        ids: list[int] = []
        first_at, last = 0.0, None
        tokens, tenure = ask.prompt - ask.predicted, self.tenure
        with stage.pace.generation(tokens, held=tenure.waits) as generating, tenure.asking(generating.hold):
            async with aclosing(stage.engine.generate(request)) as deltas:
                async for last in deltas:
                    if not ids:
                        first_at = stage.first_token(agent, number)
                        generating.first()
                        if stage.mode.managed:
                            self._lanes.gate.arrived(ask.keys)
                    ids.extend(last.token_ids)
                    stage.steps.arrived(stage.engine.clock.now(), agent, number, len(last.token_ids))
                    said(last.token_ids)
            generating.done(len(ids))
        usage = _usage(request, last, ids)
        tenure.granted(NAME, last.grant if last else None)
        return ids, first_at, usage


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


def extend(chain: Chain, kind: SegmentKind, ids: tuple[int, ...]) -> Chain:
    """The chain with ``ids`` behind it, if there are any."""
    return chain.extend(Segment(kind=kind, label=NAME, ids=ids)) if ids else chain
