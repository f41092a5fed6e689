"""The task that keeps the engine's KV caught up with what is certain of a run's next prompts."""

from collections.abc import Callable, Sequence

import anyio

from agentkv.config import KVConfig
from agentkv.engines.base import Engine, PrefillRequest
from agentkv.errors import AdmissionRefused, EngineError
from agentkv.follow import missing_tokens, prefills_ahead
from agentkv.graph.path import Path, place
from agentkv.report import Ledger, LeftOut
from agentkv.runtime.events import Prefetched
from agentkv.runtime.feed import Feed
from agentkv.runtime.pace import Pace
from agentkv.runtime.session import Session
from agentkv.runtime.state import Tip
from agentkv.runtime.tenure import Tenure

__all__ = ("Follower",)


class Follower:
    """Prefills tips ahead, one request at a time, when that pays; the newest tips replace the former ones.

    The followers of a run's branches share ``prefetches``, which bounds their requests.
    """

    def __init__(
        self,
        engine: Engine,
        config: KVConfig,
        ledger: Ledger,
        tenure: Tenure,
        run_id: str,
        salt: str | None,
        publish: Callable[[Prefetched], None],
        *,
        pace: Pace,
        branch: Path = (),
        prefetches: anyio.Semaphore | None = None,
    ) -> None:
        self._engine, self._config, self._ledger, self._tenure = engine, config, ledger, tenure
        self._pace = pace
        self._run_id, self._salt, self._publish = run_id, salt, publish
        self._branch = branch
        self._prefetches = prefetches or anyio.Semaphore(config.branch_prefetch_limit)
        self._targets: Feed[tuple[Tip, ...]] = Feed()
        self._scope: anyio.CancelScope | None = None
        self._holding_back: anyio.CancelScope | None = None
        self._idle = anyio.Event()
        self._idle.set()
        self._in_flight: str | None = None
        self._enough = False
        self._sent = 0

    @classmethod
    def of(cls, session: Session, tenure: Tenure, branch: Path) -> "Follower":
        """That of one chain of a run: the main one's, or a branch's."""
        return cls(
            session.engine,
            session.kv,
            session.ledger,
            tenure,
            session.run_id,
            session.salt,
            session.publish,
            pace=session.pace,
            branch=branch,
            prefetches=session.prefetches,
        )

    def follow(self, tips: tuple[Tip, ...]) -> None:
        """Catch up with ``tips`` from now on, after the step in flight."""
        self._targets.put(tips)
        self._stop_holding_back()

    async def adopt(self, agent: str) -> bool:
        """Stop, as ``transfer_sync_level`` says, so that a request for ``agent`` can be sent.

        True if a step of that agent's chain was cut off: a request sent now finds what it had dispatched.
        """
        self._targets.clear()
        self._enough = True
        self._stop_holding_back()
        level, in_flight = self._config.transfer_sync_level, self._in_flight
        if level < 2 and self._scope is not None:
            self._scope.cancel()
        if level > 0:
            await self._idle.wait()
        return level < 2 and in_flight == agent

    async def prefill(self, tip: Tip) -> None:
        """Catch up with ``tip`` now, whatever the mode and the load, and be done."""
        block, sent = self._engine.info.block_size, self._config.branch_prefetch_limit > 0
        while sent:
            keys, start, missing = self._lacks(tip)
            if not missing or not await self._tenure.begin():
                return
            end = start // block * block + min(missing, max(block, self._pace.step(self._config) // block * block))
            async with self._prefetches:
                sent = await self._send(tip, start, end, keys[: end // block])

    async def run(self) -> None:
        """Follow until cancelled."""
        async for tips in self._targets:
            self._idle = anyio.Event()
            self._enough = False
            try:
                with anyio.CancelScope() as self._scope:
                    await self._catch_up(tips)
            finally:
                self._scope = None
                self._idle.set()

    async def _catch_up(self, tips: tuple[Tip, ...]) -> None:
        for tip in tips:
            while not (self._enough or self._targets) and await self._step(tip):
                pass

    async def _step(self, tip: Tip) -> bool:
        block = self._engine.info.block_size
        keys, start, missing = self._lacks(tip)
        if not missing or not prefills_ahead(self._config.kv_transfer_mode) or self._left_out(tip, missing):
            return False
        tokens = await self._when_it_pays(missing)
        try:
            if not tokens or not await self._may_send():
                self._note("refused" if tokens else "late", tip, missing)
                return False
            end = start // block * block + tokens
            async with self._prefetches:
                # Somebody may have asked while it waited for its place: then it is offered anew.
                return self._pace.load.asked > 0 or await self._send(tip, start, end, keys[: end // block])
        finally:
            self._pace.over(tokens)

    def _left_out(self, tip: Tip, missing: int) -> bool:
        mode, limit = self._config.kv_transfer_mode, self._config.branch_prefetch_limit
        why = self._pace.unwanted(mode, len(tip.chain), missing) if limit else "limit"
        if why is not None:
            self._note(why, tip, missing)
        return why is not None

    def _note(self, why: LeftOut, tip: Tip, missing: int) -> None:
        # What was guessed at may not be asked for: that nothing of it was prefilled explains nothing.
        if tip.source in ("certain", "stream"):
            self._ledger.left_out(why, missing)

    async def _may_send(self) -> bool:
        try:
            return await self._tenure.begin()
        except (EngineError, AdmissionRefused):
            # Whoever asks for a generation hears of it, and only then is it an error.
            return False

    def _lacks(self, tip: Tip) -> tuple[Sequence[bytes], int, int]:
        """The keys of the tip's blocks, its tokens believed cached, and those that whole blocks lack."""
        block = self._engine.info.block_size
        keys = tip.chain.block_keys(block)
        start = self._ledger.resident(keys)
        return keys, start, missing_tokens(start, len(tip.chain), block)

    async def _send(self, tip: Tip, start: int, end: int, keys: Sequence[bytes]) -> bool:
        """Whether the prefetch was made; one that the engine gives up is an offer not taken."""
        self._in_flight = tip.agent
        try:
            await self._prefill(tip, start, end, keys)
        except EngineError:
            # Prefilling ahead is an offer: a run that can go on without it goes on.
            self._ledger.aborted(end - start)
            return False
        except anyio.get_cancelled_exc_class():
            self._ledger.aborted(end - start)
            raise
        else:
            return True
        finally:
            self._in_flight = None

    async def _when_it_pays(self, missing: int) -> int:
        """Tokens to prefill now; 0 where there are newer tips, or no time left, before it was worth it."""
        tokens = 0
        with anyio.CancelScope() as self._holding_back:
            tokens = await self._pace.ready(missing, self._pace.step(self._config))
        self._holding_back = None
        return tokens

    def _stop_holding_back(self) -> None:
        if self._holding_back is not None:
            self._holding_back.cancel()

    async def _prefill(self, tip: Tip, start: int, end: int, keys: Sequence[bytes]) -> None:
        self._sent += 1
        request = PrefillRequest(
            request_id=f"{self._run_id}/{place(self._branch, 'ahead')}/{self._sent}",
            token_ids=tip.chain.ids()[:end],
            cache_salt=self._salt,
            tag=f"{self._run_id}/ahead",
            directive=self._tenure.ahead(tip.agent),
        )
        self._ledger.prefetching(keys[start // self._engine.info.block_size :], tip.source)
        with self._pace.prefetch(end - start) as prefetching:
            receipt = await self._engine.prefill(request)
            prefetching.done(receipt.computed)
        self._tenure.granted(tip.agent, receipt.grant, ahead=True)
        self._ledger.prefetched(keys, receipt, tip.source)
        self._publish(
            Prefetched(
                agent=tip.agent,
                start=start,
                end=end,
                computed=receipt.computed,
                sent_at=receipt.sent_at,
                at=receipt.done_at,
                branch=self._branch,
            )
        )
