"""What all agents of one repetition share: the engine, the books, the limit on how many are under way."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import anyio

from agentkv.bench.modes import ModeConfig
from agentkv.bench.turn import Turn
from agentkv.config import KVConfig
from agentkv.engines import Engine
from agentkv.follow import ToolTimes
from agentkv.report import Ledger, Residency
from agentkv.runtime.anchors import Anchors
from agentkv.runtime.events import Prefetched, Queued
from agentkv.runtime.heartbeat import Heartbeat

__all__ = ("Stage",)


class Stage:
    """One repetition of one mode. ``salt`` keeps its KV apart from that of all others on the engine."""

    def __init__(
        self, engine: Engine, mode: ModeConfig, salt: str, *, blocks: int, ended: Callable[[int], None]
    ) -> None:
        assert mode.cap != "best", "trials come before the repetitions"
        self.engine, self.mode, self.salt = engine, mode, salt
        self.kv = KVConfig(
            kv_transfer_mode="bidirectional" if mode.follow else "prefix", prefetch_step=mode.prefetch_step
        )
        # What the engine evicted must still be known here, or it would be booked as never seen.
        self._residency = Residency(engine.info.block_size, capacity=2 * blocks)
        self.turns: list[Turn] = []
        self.ledgers: list[Ledger] = []
        self.task_s: list[float] = []
        self.prefetches = 0
        self.tool_times = ToolTimes()
        self.heartbeat = Heartbeat(engine, Anchors(engine))
        self._slots = None if mode.cap is None else anyio.Semaphore(mode.cap)
        self._ended = ended

    def slot(self) -> AbstractAsyncContextManager[object]:
        """The right to be under way."""
        return nullcontext() if self._slots is None else self._slots

    def ledger(self, run_id: str) -> Ledger:
        """The account of one agent."""
        ledger = Ledger(run_id, self._residency, self.salt, reuse=self.mode.reuse)
        self.ledgers.append(ledger)
        return ledger

    def happened(self, event: Prefetched | Queued) -> None:
        """Count prefetches that ended; waiting for admission is in the turn's time already."""
        if isinstance(event, Prefetched):
            self.prefetches += 1

    def done(self, seconds: float) -> None:
        """Note that an agent ended, ``seconds`` after it arrived."""
        self.task_s.append(seconds)
        self._ended(len(self.task_s))
