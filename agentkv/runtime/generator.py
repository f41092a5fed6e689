"""The generating side of one run: predict, ask, stream, book."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from agentkv.chain import Segment
from agentkv.engines.base import Delta, GenerateRequest, Sampling
from agentkv.errors import EngineError
from agentkv.graph.path import Path, place
from agentkv.report import Ask, BlockFate, Step
from agentkv.runtime.events import GenerationAsked, GenerationFinished, TextDelta
from agentkv.runtime.program import Program
from agentkv.runtime.session import Session
from agentkv.runtime.state import Generate
from agentkv.runtime.tenure import Tenure

__all__ = ("Generator",)


class Generator:
    """Turns a ``Generate`` command into one engine request and its tokens into events."""

    def __init__(self, session: Session, program: Program, branch: Path, tenure: Tenure) -> None:
        self._session, self._program, self._branch, self._tenure = session, program, branch, tenure
        self._engine, self._ledger = session.engine, session.ledger
        self._fates: Sequence[BlockFate] = ()

    def keys(self, command: Generate) -> list[bytes]:
        """The keys of the blocks that the prompt may find in the cache, or leave there."""
        return command.chain.block_keys(self._engine.info.block_size) if self._reuse else []

    @property
    def _reuse(self) -> bool:
        return self._session.kv.kv_transfer_mode != "off"

    def ask(self, command: Generate, adopted: bool) -> GenerationAsked:
        """The fact to journal before the request is sent, with the prediction in it."""
        keys = command.chain.block_keys(self._engine.info.block_size)
        self._fates = self._ledger.fates(keys)
        return GenerationAsked(
            node=command.node,
            visit=command.visit,
            agent=command.agent,
            prompt=len(command.chain),
            predicted=self._ledger.predict(keys, len(command.chain)),
            known=command.known,
            adopted=adopted,
            asked_at=command.asked_at,
            at=self._engine.clock.now(),
            branch=self._branch,
        )

    async def generate(
        self, command: Generate, asked: GenerationAsked, publish: Callable[[TextDelta], None]
    ) -> GenerationFinished:
        """Send the request, publish its text as it comes, book what it cost."""
        ids: list[int] = []
        first: Delta | None = None
        last: Delta | None = None
        text = self._program.format.tokenizer.stream()
        tokens, pace, tenure = asked.prompt - asked.predicted, self._session.pace, self._tenure
        with pace.generation(tokens, held=tenure.waits) as generating, tenure.asking(generating.hold):
            async with aclosing(self._engine.generate(self._request(command))) as deltas:
                async for last in deltas:
                    if first is None:
                        first = last
                        generating.first()
                        self._session.gate.arrived(self.keys(command))
                    ids.extend(last.token_ids)
                    if new := text.feed(last.token_ids):
                        publish(TextDelta(node=command.node, text=new, at=last.at, branch=self._branch))
            generating.done(len(ids))
        if first is None or last is None or last.usage is None or last.finish is None:
            raise EngineError(f"node {command.node!r}: the engine ended the request without a result")
        self._tenure.granted(command.agent, last.grant)
        step = self._book(command, asked, ids, last)
        return GenerationFinished(
            node=command.node,
            visit=command.visit,
            token_ids=tuple(ids),
            finish=last.finish,
            prompt=last.usage.prompt,
            cached=last.usage.cached,
            first_at=first.at,
            at=self._engine.clock.now(),
            prefilled=step.prefilled,
            branch=self._branch,
        )

    def _request(self, command: Generate) -> GenerateRequest:
        agent = self._program.agents[command.agent].agent
        name = f"{self._session.run_id}/{place(self._branch, command.node)}/{command.visit}"
        return GenerateRequest(
            request_id=name,
            token_ids=command.chain.ids(),
            max_tokens=command.max_tokens,
            sampling=Sampling(temperature=agent.temperature, top_p=agent.top_p),
            stop_token_ids=self._program.format.stop_ids,
            constraint=command.constraint,
            cache_salt=self._session.salt,
            reuse=self._reuse,
            tag=name,
            directive=self._tenure.generation(command.agent, resume=command.resume),
        )

    def _book(self, command: Generate, asked: GenerationAsked, ids: list[int], last: Delta) -> Step:
        assert last.usage is not None
        block = self._engine.info.block_size
        after = command.chain.extend(Segment(kind="assistant", label=command.node, ids=tuple(ids)))
        # The last generated token never has KV: it is fed to the model by the next request, if at all.
        resident = (len(after) - 1) // block
        ask = Ask(
            node=command.node,
            visit=command.visit,
            agent=command.agent,
            prompt=asked.prompt,
            known=command.known,
            keys=command.chain.block_keys(block),
            predicted=asked.predicted,
            adopted=asked.adopted,
            diverged_at=command.diverged_at,
            branch=place(self._branch),
            fates=self._fates,
        )
        return self._ledger.generated(ask, last.usage, after.block_keys(block)[:resident])
