"""The effectful side of one run: carries out the reducer's commands with engine, tools and leases."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from anyio.abc import TaskGroup
from attrs import evolve

from agentkv.config import KVConfig
from agentkv.errors import ScriptError, ToolError
from agentkv.follow import RESULT_GUESSED, Memo, Memos, PredictedResult, prefills_ahead
from agentkv.graph.path import Path
from agentkv.report import Incident, Span, incidents
from agentkv.runtime import choosing
from agentkv.runtime.anchors import AnchorKey
from agentkv.runtime.branching import inside
from agentkv.runtime.events import Event, GenerationAsked, GenerationFinished, RunEvent, TextDelta
from agentkv.runtime.generation import refused
from agentkv.runtime.lane import Lane
from agentkv.runtime.lanes import Lanes
from agentkv.runtime.next_steps import NextSteps
from agentkv.runtime.partial_outputs import PartialOutputs
from agentkv.runtime.partial_results import PartialResults, guess
from agentkv.runtime.program import Program
from agentkv.runtime.services import Order, Services
from agentkv.runtime.session import News, begin_session
from agentkv.runtime.state import (
    Adopt,
    CallTool,
    Choose,
    Command,
    End,
    Follow,
    Generate,
    Leave,
    ListBranches,
    State,
    Tip,
    Wait,
)
from agentkv.runtime.tenure import Tenure, owner_of
from agentkv.tools import ToolCall

__all__ = ("Shell",)

Apply = Callable[[GenerationAsked], Awaitable[object]]


class Shell:
    """Owns what one run does outside the reducer, in a lane for the main chain and one for each branch.

    ``publish`` takes events that are not journalled, ``report`` what was put before the reducer and where it happened,
    ``ran`` the times of tools;
    ``state`` says what state the run is in.
    """

    def __init__(
        self,
        services: Services,
        program: Program,
        order: Order,
        *,
        publish: Callable[[RunEvent], None],
        report: Callable[[Path, News], None],
        ran: Callable[[Span], None],
        state: Callable[[], State],
    ) -> None:
        self._services, self._program, self._order, self._publish = services, program, order, publish
        self._state = state
        engine, run_id, salt = services.engine, order.run_id, order.salt
        self.tenure = Tenure(engine, run_id, salt, publish)
        self._session = begin_session(
            services,
            run_id,
            salt,
            publish=publish,
            report=report,
            arrived=self._arrived,
            ran=ran,
            deps=order.deps,
            memo=self._memo(services.kv, salt),
        )
        self.ledger = self._session.ledger
        self._lanes = Lanes(self._session, program, self.tenure, services.heartbeat)
        self._outputs = PartialOutputs(program, engine.info.block_size)
        self._results = PartialResults(program, engine.info.block_size)
        self._next_steps = NextSteps(services, program, order, self.ledger)
        self._entering = anyio.Lock()
        self._anchors: dict[str, AnchorKey | None] = {}
        self._first_prompt = self._largest = 0
        self.incidents: tuple[Incident, ...] = ()

    @property
    def abandoned(self) -> tuple[str, ...]:
        """Sync tools whose thread nobody waits for any more."""
        return self._lanes.abandoned

    async def begin(self, work: TaskGroup) -> None:
        """Start the main chain's lane in ``work``; from here on what the run holds is kept alive."""
        await self._next_steps.load()
        await self._lanes.begin(work)

    async def execute(self, work: TaskGroup, command: Command, apply: Apply) -> Event | None:
        """Carry out ``command``; the event to go on with at once, if any. Longer work is started in ``work``.

        ``apply`` takes the prediction of a generation before its request is sent.
        """
        match command:
            case End():
                return command.event
            case Leave():
                await self._lanes.leave(command.branch)
            case Adopt():
                await self._lanes.adopt(command.branch)
            case Wait():
                work.start_soon(self._wait, command)
            case _:
                self._carry_out(await self._lanes.open(work, command.branch), command, apply)
        return None

    def _carry_out(
        self, lane: Lane, command: Generate | CallTool | Follow | ListBranches | Choose, apply: Apply
    ) -> None:
        now = self._services.engine.clock.now
        match command:
            case Generate():
                lane.start(partial(self._generate, lane, command, apply), f"generate {command.node}")
            case CallTool():
                lane.call(command, self._guess(lane, command))
            case Follow():
                self._follow(lane, command.tips)
                if command.waiting_for:
                    lane.expect(self._services.tool_times.expected(command.waiting_for))
            case ListBranches():
                lane.start(partial(choosing.list_branches, lane.program, command, now), f"list {command.node}")
            case Choose():
                lane.start(partial(choosing.choose, lane.program, command, now), f"choose {command.node}")

    def _memo(self, kv: KVConfig, salt: str | None) -> Callable[[str], Memo] | None:
        if kv.predict_results == "off" or not prefills_ahead(kv.kv_transfer_mode):
            return None
        memos = self._services.memos if kv.predict_results == "agent" else Memos(kv.memo_bytes)
        return partial(memos.of, owner_of(salt))

    def _guess(self, lane: Lane, command: CallTool) -> PredictedResult | None:
        """What the call may give; prefilled if such guesses are right often enough."""
        kv = self._services.kv
        if not (prefills_ahead(kv.kv_transfer_mode) and kv.branch_prefetch_limit):
            return None
        node, memo = lane.program.nodes[command.asking], self._session.memo
        try:
            guessed = guess(node.tools[command.call.name], command.call, memo and memo(node.agent.agent.name))
        except ToolError as error:
            self._session.report(lane.branch, error)
            return None
        right = guessed is not None and self._session.trust.enough(command.call.name, guessed.source)
        self._results.called(lane.branch, command.call, guessed if right else None)
        return guessed

    def _arrived(self, branch: Path, call: ToolCall, chunk: str) -> None:
        lane = self._lanes.get(branch) if prefills_ahead(self._services.kv.kv_transfer_mode) else None
        if lane is not None and self._results.came(branch, call, chunk):
            self._follow(lane, self._results.certain(branch, self._state()))

    def _follow(self, lane: Lane, certain: tuple[Tip, ...]) -> None:
        """Prefill what is certain, then what is there of results, guesses at them, and what may be asked later."""
        state = self._state()
        found = self._results.extend(lane.branch, certain, state)
        lane.follower.follow((*found, *self._next_steps.tips(lane.branch, found, state)))

    async def _wait(self, command: Wait) -> None:
        await self._services.engine.clock.sleep(command.seconds)
        self._session.report((), evolve(command.then, at=self._services.engine.clock.now()))

    async def _generate(self, lane: Lane, command: Generate, apply: Apply) -> GenerationFinished:
        async with self._entering:
            await self._make_sure_of_room(lane, command)
        await lane.tenure.begin()
        async with self._session.gate.enter(lane.generator.keys(command)):
            streamed = min(self._results.asked(lane.branch, command.agent), len(command.chain))
            command = evolve(command, known=max(command.known, streamed))
            asked = lane.generator.ask(command, await lane.follower.adopt(command.agent))
            await apply(asked)
            self._next_steps.asked(lane.branch, command.node, command.visit)
            self._outputs.begin(lane.branch)
            try:
                event = await lane.generator.generate(command, asked, self._said)
            except ScriptError as error:
                if not (why := self._refused(lane.branch)):
                    raise
                raise ScriptError(f"{error}; or mend the turn before, which was refused: {why!r}") from error
        if command.agent not in self._anchors:
            agent, kv = lane.program.agents[command.agent], self._services.kv
            self._anchors[command.agent] = self._services.anchors.hold(
                agent, self._order.salt, self.ledger, kv.anchor_ttl
            )
        return event

    def _refused(self, branch: Path) -> str:
        there = inside(self._program, self._state(), branch)
        return "" if there is None else refused(there[1])

    def _said(self, event: TextDelta) -> None:
        self._publish(event)
        if prefills_ahead(self._services.kv.kv_transfer_mode):
            follow = self._outputs.said(event, self._state())
            lane = None if follow is None else self._lanes.get(follow.branch)
            if follow is not None and lane is not None:
                lane.follower.follow(follow.tips)

    async def _make_sure_of_room(self, lane: Lane, command: Generate) -> None:
        """Have the run admitted before its first generation, and its estimate raised where it outgrew it."""
        prompts = self._state().held
        block, held = self._services.engine.info.block_size, prompts + command.max_tokens
        self._largest = max(self._largest, held)
        if self._first_prompt:
            await self.tenure.grow(-(-held // block))
            return
        self._first_prompt = prompts
        agent = lane.program.agents[command.agent]
        name = f"{owner_of(self._order.salt)}/{agent.digest}"
        estimate = partial(self._working_set, held, command.max_tokens + RESULT_GUESSED)
        first = -(-held // block)
        await self.tenure.admit(estimate(), name, len(agent.anchor) // block, held=first, estimate=estimate)

    def _working_set(self, held: int, growth_per_round: int) -> int:
        """Blocks that the run will hold at its largest, by what is known now; ``held`` tokens are certain."""
        expected = self._order.working_set or self._services.working_sets.expected(
            self._program.graph.digest,
            held,
            growth_per_round,
            self._program.max_model_len,
            branches=self._program.graph.breadth,
        )
        return -(-max(expected, held) // self._services.engine.info.block_size)

    async def close(self, *, finished: bool) -> None:
        """Give back what the run holds in the engine; remember where it went, and of a ``finished`` one how it grew."""
        for key in self._anchors.values():
            if key is not None:
                self._services.anchors.let_go(key)
        try:
            if self.tenure.managed:
                self.incidents = incidents(await self._services.records.read(self._order.run_id))
        finally:
            await self._lanes.close()
        await self._next_steps.save(finished=finished)
        if finished and self._first_prompt:
            grown = self._largest - self._first_prompt
            if self._services.working_sets.add(self._program.graph.digest, grown):
                await self._services.heartbeat.reconsider()
