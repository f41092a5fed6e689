"""One run: a loop that journals each event, reduces it and carries out what the reducer asks for."""

from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from agentkv import errors
from agentkv.errors import (
    AgentKVError,
    EngineError,
    EngineUnavailable,
    LimitExceeded,
    RunCancelled,
    RunError,
    SetupError,
    StoreError,
)
from agentkv.graph.path import Path, place
from agentkv.raised import shown
from agentkv.report import RunReport
from agentkv.runtime.events import (
    BranchFailed,
    Event,
    RunCancelledEvent,
    RunEvent,
    RunFailed,
    RunFinished,
    RunStarted,
    to_journal,
)
from agentkv.runtime.feed import Feed
from agentkv.runtime.program import Program
from agentkv.runtime.reducer import reduce
from agentkv.runtime.result import Result, make_result
from agentkv.runtime.services import Order, Services
from agentkv.runtime.session import News
from agentkv.runtime.shell import Shell
from agentkv.runtime.state import Command, State
from agentkv.runtime.timekeeper import Timekeeper

__all__ = ("Run",)

Output = TypeVar("Output")


class Run(Generic[Output]):
    """A run in progress; made by ``Runtime.start`` and used as an async context manager.

    Iterating gives its events as they happen, to one reader. Leaving the context ends a run that has not ended.
    """

    def __init__(self, services: Services, program: Program, order: Order, *, watched: bool) -> None:
        self.id = order.run_id
        self._services, self._program, self._order, self._watched = services, program, order, watched
        self._state = State()
        self._seq = 0
        self._entered = False
        self._cause: AgentKVError | None = None
        self._ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._inbox: Feed[Event] = Feed()
        self._events: Feed[RunEvent] = Feed()
        self._timekeeper = Timekeeper()
        self._applying = anyio.Lock()
        self._shell = Shell(
            services,
            program,
            order,
            publish=self._publish,
            report=self._reported,
            ran=self._timekeeper.add,
            state=lambda: self._state,
        )

    async def __aenter__(self) -> Self:
        """Begin. Raises ``SetupError`` for a run that has begun, ``EngineUnavailable`` behind its runtime's end."""
        if self._entered:
            raise SetupError(f"run {self.id!r} has begun already; start another with rt.start(...)")
        if self._services.closed.is_set() or not self._services.engine.started:
            raise EngineUnavailable(f"run {self.id!r}: the runtime was closed")
        self._entered = True
        self._services.live.add(self)
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._drive, name=f"run {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        # What the body raised is the caller's own: passed to the group, it would come out wrapped.
        await self._tasks.__aexit__(None, None, None)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    def cancel(self) -> None:
        """End the run now: tools and engine requests are cancelled, every call gets a result that says so."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Cancel, and wait until the run's end is journalled; one that has not begun ends as soon as it does."""
        self.cancel()
        if self._entered:
            await self._ended.wait()

    async def result(self) -> Result[Output]:
        """Wait for the end and return the answer.

        Raises what ended the run if that was not an answer, its report in ``report``; ``SetupError`` for a
        run that was never entered.
        """
        if not self._entered:
            raise SetupError(f"run {self.id!r} has not begun; use it as: async with rt.start(...) as run")
        await self._ended.wait()
        match self._state.end:
            case RunFinished() as end:
                return make_result(self._program, self._state, end, self.report)
            case RunFailed() as end:
                raise self._error(end) from (self._cause and self._cause.__cause__)
            case _:
                raise self._named(RunCancelled(f"run {self.id!r} was cancelled"))

    @property
    def state(self) -> State:
        """The run's state now; a value."""
        return self._state

    @property
    def report(self) -> RunReport:
        """The account of the run so far."""
        return RunReport(
            run_id=self.id,
            graph=self._program.graph.name,
            mode=self._services.kv.kv_transfer_mode,
            engine=self._services.engine.info,
            outcome=self._state.end.type if self._state.end else "running",
            steps=tuple(self._shell.ledger.steps),
            totals=self._shell.ledger.totals(),
            spans=self._timekeeper.spans(),
            left_out=self._shell.ledger.most_left_out,
            abandoned=self._shell.abandoned,
            refused=tuple(self._shell.tenure.refused),
            incidents=self._shell.incidents,
            sources=self._shell.ledger.sources(),
            branches=tuple((place(end.branch), end.status) for end in self._state.past),
            failures=tuple((place(end.branch), end.why) for end in self._state.past if end.why),
        )

    async def _drive(self) -> None:
        try:
            with self._scope:
                await self._until_ended()
        except* AgentKVError as group:
            await self._give_up(_as_ours(self.id, _first(group)))
        except* Exception as group:  # noqa: BLE001 - a run ends in an error of ours, whatever went wrong
            await self._give_up(_as_ours(self.id, _first(group)))
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _until_ended(self) -> None:
        clock, limit = self._services.engine.clock, self._program.limits.seconds
        async with clock.deadline(limit) as deadline:
            await self._loop()
        if deadline.cancelled_caught:
            remedy = "give the run or its Runtime larger limits=akv.Limits(seconds=...)"
            await self._give_up(LimitExceeded(f"run {self.id!r}: Limits.seconds={limit:g} reached; {remedy}"))

    async def _loop(self) -> None:
        async with anyio.create_task_group() as work:
            await self._shell.begin(work)
            self._inbox.put(self._started())
            while self._state.end is None:
                for command in await self._apply(await anext(self._inbox)):
                    event = await self._shell.execute(work, command, self._apply)
                    if event is not None:
                        self._inbox.put(event)
            work.cancel_scope.cancel()

    def _started(self) -> RunStarted:
        graph, services = self._program.graph, self._services
        return RunStarted(
            run_id=self.id,
            graph=graph.name,
            digest=graph.digest,
            prompt=self._order.prompt,
            at=self._now(),
            mode=services.kv.kv_transfer_mode,
            block_size=services.engine.info.block_size,
        )

    async def _apply(self, event: Event) -> tuple[Command, ...]:
        # Generations of branches put their predictions here themselves, each before its request is sent.
        async with self._applying:
            await self._journal(event)
            self._state, commands = reduce(self._program, self._state, event)
            self._publish(event)
        return commands

    def _reported(self, branch: Path, news: News) -> None:
        if not isinstance(news, AgentKVError):
            self._inbox.put(news)
        elif branch:
            # Whether that ends the run is for the join to say.
            self._inbox.put(BranchFailed(kind=_kind(news), message=str(news), at=self._now(), branch=branch))
        else:
            self._inbox.put(self._failure(news))

    def _failure(self, error: AgentKVError) -> RunFailed:
        # The first one to be noted is the one that ends the run.
        self._cause = self._cause or error
        return RunFailed(kind=_kind(error), message=str(error), at=self._now())

    async def _journal(self, event: Event) -> None:
        # Shielded: a cancelled append may or may not have been written, and the next would not know its number.
        with anyio.CancelScope(shield=True):
            async with self._services.engine.clock.busy():
                await self._services.store.append(self.id, self._seq, to_journal(event))
        self._seq += 1

    def _publish(self, event: RunEvent) -> None:
        self._timekeeper.record(event)
        if self._watched:
            self._events.put(event)

    async def _give_up(self, error: AgentKVError) -> None:
        await self._end(self._failure(error))

    async def _end(self, event: Event) -> None:
        """End the run from outside its loop, unless it has its end: what goes wrong behind that changes nothing.

        A journal that can no longer be written does not keep it alive.
        """
        if self._state.end is not None:
            return
        with anyio.CancelScope(shield=True):
            with suppress(StoreError):
                await self._journal(event)
            self._state, _ = reduce(self._program, self._state, event)
            self._publish(event)

    async def _close(self) -> None:
        try:
            await self._end(RunCancelledEvent(at=self._now()))
            with suppress(EngineError):
                await self._shell.close(finished=isinstance(self._state.end, RunFinished))
        finally:
            self._services.live.discard(self)
            self._ended.set()
            self._events.close()

    def _now(self) -> float:
        return self._services.engine.clock.now()

    def _error(self, end: RunFailed) -> AgentKVError:
        cls = getattr(errors, end.kind, RunError)
        return self._named(cls(end.message))

    def _named(self, error: AgentKVError) -> AgentKVError:
        if isinstance(error, RunError):
            error.run_id, error.report = self.id, self.report
        return error


def _first(error: BaseException) -> BaseException:
    """The first error within a group: what ended the run, where several things went wrong at once."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _kind(error: AgentKVError) -> str:
    """The name of the class in ``agentkv.errors`` that ``error`` is of: users derive from these."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == errors.__name__)


def _as_ours(run_id: str, error: BaseException) -> AgentKVError:
    """``error`` if it was raised on purpose, else one that says what nobody meant to be raised."""
    if isinstance(error, AgentKVError):
        return error
    failed = RunError(f"run {run_id!r} failed unexpectedly: {shown(error)}")
    failed.__cause__ = error
    return failed
