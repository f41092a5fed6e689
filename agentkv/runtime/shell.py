"""The effectful side of one run: carries out the reducer's commands with engine, tools and leases."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from attrs import field, frozen

from agentkv.config import KVConfig
from agentkv.engines.base import Engine
from agentkv.errors import AgentKVError
from agentkv.follow import RESULT_GUESSED, ToolTimes, WorkingSets
from agentkv.report import Incident, Ledger, Residency, incidents
from agentkv.runtime.anchors import AnchorKey, Anchors
from agentkv.runtime.dispatcher import Dispatcher
from agentkv.runtime.events import CallFinished, CallStarted, Event, GenerationAsked, RunEvent
from agentkv.runtime.follower import Follower
from agentkv.runtime.generator import Generator
from agentkv.runtime.heartbeat import Heartbeat
from agentkv.runtime.program import Program
from agentkv.runtime.records import KVRecords
from agentkv.runtime.state import CallTool, Command, End, Follow, Generate
from agentkv.runtime.tenure import Tenure, owner_of
from agentkv.store import Store

__all__ = ("Order", "Services", "Shell")


@frozen(kw_only=True)
class Services:
    """What all runs of a runtime share.

    ``live`` are the runs that have not ended. ``threads`` bounds the worker threads of sync tools;
    ``tool_times`` and ``working_sets`` are what was learnt from earlier runs.
    """

    engine: Engine
    store: Store
    residency: Residency
    kv: KVConfig
    threads: anyio.CapacityLimiter
    heartbeat: Heartbeat
    anchors: Anchors
    records: KVRecords
    tool_times: ToolTimes
    working_sets: WorkingSets
    live: set[Any] = field(factory=set)


@frozen(kw_only=True)
class Order:
    """What a caller asked for: the run's own settings beside those of its runtime.

    ``working_set``: tokens that the run will hold at its largest, None to have that estimated.
    """

    run_id: str
    prompt: str
    deps: Any
    salt: str | None
    working_set: int | None = None


class Shell:
    """Owns what one run does outside the reducer. ``publish`` takes events that are not journalled."""

    def __init__(
        self,
        services: Services,
        program: Program,
        order: Order,
        *,
        publish: Callable[[RunEvent], None],
        report: Callable[[CallStarted | CallFinished | AgentKVError], None],
    ) -> None:
        self._services, self._program, self._order, self._publish = services, program, order, publish
        engine, kv, run_id, salt = services.engine, services.kv, order.run_id, order.salt
        self.ledger = Ledger(run_id, services.residency, salt, reuse=kv.kv_transfer_mode != "off")
        self.tenure = Tenure(engine, run_id, salt, publish)
        self._follower = Follower(engine, kv, self.ledger, self.tenure, run_id, salt, publish)
        self._generator = Generator(engine, kv, program, self.ledger, self.tenure, run_id, salt)
        self._dispatcher = Dispatcher(
            program, engine.clock, services.threads, services.tool_times, run_id, order.deps, report
        )
        self._anchors: dict[str, AnchorKey | None] = {}
        self._first_prompt = self._largest = 0
        self.incidents: tuple[Incident, ...] = ()

    @property
    def abandoned(self) -> tuple[str, ...]:
        """Sync tools whose thread nobody waits for any more."""
        return tuple(self._dispatcher.abandoned)

    async def follow(self) -> None:
        """Prefill ahead until cancelled; from here on the run's leases are kept alive."""
        self._services.heartbeat.join(self.tenure)
        await self._follower.run()

    async def execute(
        self, work: TaskGroup, command: Command, apply: Callable[[GenerationAsked], Awaitable[object]]
    ) -> Event | None:
        """Carry out ``command``; the event that it ended in at once, if any. Longer work is started in ``work``.

        ``apply`` takes the prediction of a generation before its request is sent.
        """
        match command:
            case Generate():
                return await self._generate(command, apply)
            case CallTool():
                self._dispatcher.start(work, command, self.tenure.as_parent)
                return None
            case Follow():
                work.start_soon(self.tenure.waiting, self._services.tool_times.expected(command.waiting_for))
                self._follower.follow(command.tips)
                return None
            case End():
                return command.event

    async def _generate(self, command: Generate, apply: Callable[[GenerationAsked], Awaitable[object]]) -> Event:
        await self._make_sure_of_room(command)
        asked = self._generator.ask(command, await self._follower.adopt(command.agent))
        await apply(asked)
        event = await self._generator.generate(command, asked, self._publish)
        if command.agent not in self._anchors:
            agent, kv = self._program.agents[command.agent], self._services.kv
            self._anchors[command.agent] = self._services.anchors.hold(
                agent, self._order.salt, self.ledger, kv.anchor_ttl
            )
        return event

    async def _make_sure_of_room(self, command: Generate) -> None:
        """Have the run admitted before its first generation, and its estimate raised where it outgrew it."""
        block, held = self._services.engine.info.block_size, command.held + command.max_tokens
        self._largest = max(self._largest, held)
        if self._first_prompt:
            await self.tenure.grow(-(-held // block))
            return
        self._first_prompt = command.held
        anchor = self._program.agents[command.agent].anchor
        name = f"{owner_of(self._order.salt)}/{self._program.agents[command.agent].digest}"
        estimate = partial(self._working_set, held, command.max_tokens + RESULT_GUESSED)
        await self.tenure.admit(estimate(), name, len(anchor) // block, estimate=estimate)

    def _working_set(self, held: int, growth_per_round: int) -> int:
        """Blocks that the run will hold at its largest, by what is known now; ``held`` tokens are certain."""
        expected = self._order.working_set or self._services.working_sets.expected(
            self._program.graph.digest, held, growth_per_round, self._program.max_model_len
        )
        return -(-max(expected, held) // self._services.engine.info.block_size)

    async def close(self, *, finished: bool) -> None:
        """Give back what the run holds in the engine; of a ``finished`` run remember how large it grew."""
        self._services.heartbeat.part(self.tenure)
        for key in self._anchors.values():
            if key is not None:
                self._services.anchors.let_go(key)
        try:
            if self.tenure.managed:
                self.incidents = incidents(await self._services.records.read(self._order.run_id))
        finally:
            await self.tenure.leave()
        if finished and self._first_prompt:
            grown = self._largest - self._first_prompt
            if self._services.working_sets.add(self._program.graph.digest, grown):
                await self._services.heartbeat.reconsider()
