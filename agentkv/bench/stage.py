"""What all agents of one repetition share: the engine, the books, the limit on how many are under way."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import anyio

from agentkv.bench.modes import ModeConfig
from agentkv.bench.snapshot import Snapshot, read_counters, sum_totals
from agentkv.bench.step_log import StepLog
from agentkv.bench.turn import Source, Task, Turn, UnderWay
from agentkv.config import KVConfig
from agentkv.engines import Engine
from agentkv.follow import ToolTimes
from agentkv.report import Ledger, Residency
from agentkv.runtime.anchors import Anchors
from agentkv.runtime.events import Prefetched, Queued
from agentkv.runtime.heartbeat import Heartbeat
from agentkv.runtime.pace import Pace

__all__ = ("Stage",)

CLOSING_SECONDS = 0.1


class Stage:
    """One repetition of one mode. ``salt`` keeps its KV apart from that of all others on the engine."""

    def __init__(
        self, engine: Engine, mode: ModeConfig, salt: str, *, blocks: int, ended: Callable[[int], None]
    ) -> None:
        assert mode.cap != "best", "trials come before the repetitions"
        self.engine, self.mode, self.salt = engine, mode, salt
        self.kv = KVConfig(
            kv_transfer_mode=mode.transfer_mode if mode.follow else "prefix", prefetch_step=mode.prefetch_step
        )
        # What the engine evicted must still be known here, or it would be booked as never seen.
        self._residency = Residency(engine.info.block_size, capacity=2 * blocks)
        self.turns: list[Turn] = []
        self.ledgers: list[Ledger] = []
        self.tasks: list[Task] = []
        self.steps = StepLog()
        self.under_way: dict[tuple[int, int], UnderWay] = {}
        self.prefetches = self._prefetch_prompt = 0
        self.pace = Pace(engine)
        self.tool_times = ToolTimes()
        self.heartbeat = Heartbeat(engine, Anchors(engine))
        self._slots = None if mode.cap is None else anyio.Semaphore(mode.cap)
        self._spoken: defaultdict[tuple[int, int], anyio.Event] = defaultdict(anyio.Event)
        self._ended = ended
        self._closed = False

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
            self._prefetch_prompt += event.end

    def spoken(self, agent: int, generation: int) -> anyio.Event:
        """Set when generation ``generation`` of agent ``agent`` has ended."""
        return self._spoken[agent, generation]

    def ready(self, agent: int, turn: int, source: Source) -> float:
        """Note that a generation can be asked for from now on; returns the time."""
        now = self.engine.clock.now()
        self.under_way[agent, turn] = UnderWay(source, now)
        return now

    async def send(self, agent: int, turn: int) -> None:
        """Return when a generation may be sent: at once, or never once ``close`` was called."""
        if self._closed:
            await anyio.sleep_forever()
        self.under_way[agent, turn].sent = True

    async def close(self) -> None:
        """Let no more generations be sent, and wait until those that were are done."""
        self._closed = True
        while any(each.sent for each in self.under_way.values()):
            await self.engine.clock.sleep(CLOSING_SECONDS)

    def first_token(self, agent: int, turn: int) -> float:
        """Note that the first token is there; returns the time."""
        now = self.under_way[agent, turn].first_at = self.engine.clock.now()
        return now

    def turned(self, turn: Turn) -> None:
        """Note that a generation ended."""
        del self.under_way[turn.chain, turn.number]
        self.turns.append(turn)

    def cut(self, start: float, end: float) -> list[UnderWay]:
        """The generations that became ready from ``start`` to ``end`` and are not done."""
        return [each for each in self.under_way.values() if start <= each.ready_at <= end]

    def turns_by_agent(self) -> dict[int, tuple[Turn, ...]]:
        """All generations that ended, by agent, in their order."""
        found: dict[int, list[Turn]] = {}
        for turn in self.turns:
            found.setdefault(turn.chain, []).append(turn)
        return {agent: tuple(turns) for agent, turns in found.items()}

    def done(self, task: Task) -> None:
        """Note that an agent ended."""
        self.tasks.append(task)
        self._ended(len(self.tasks))

    async def snapshot(self, at: float | None = None) -> Snapshot:
        """All counters as of now, or of ``at`` where nothing has happened since."""
        counters = await read_counters(self.engine)
        return Snapshot(
            at=self.engine.clock.now() if at is None else at,
            totals=sum_totals(ledger.totals() for ledger in self.ledgers),
            generations=sum(len(ledger.steps) for ledger in self.ledgers),
            recomputed=sum(step.evicted for ledger in self.ledgers for step in ledger.steps),
            prefetches=self.prefetches,
            prefetch_prompt=self._prefetch_prompt,
            counters=counters,
        )
