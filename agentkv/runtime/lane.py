"""What one chain of a run has under way: the main chain's, or a branch's."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskStatus

from agentkv.errors import AdmissionRefused, AgentKVError, EngineError, EngineUnavailable, StoreError
from agentkv.follow import PredictedResult
from agentkv.graph.path import Path
from agentkv.runtime.dispatcher import Dispatcher
from agentkv.runtime.follower import Follower
from agentkv.runtime.generator import Generator
from agentkv.runtime.program import Program
from agentkv.runtime.session import News, Session
from agentkv.runtime.state import CallTool
from agentkv.runtime.tenure import Tenure

__all__ = ("Lane",)


class Lane:
    """Owns the tasks of one branch (``()``: of the main chain), its follower, and what it holds in the engine.

    Nothing can be started before ``run`` runs; whatever was ends with it.
    """

    def __init__(self, session: Session, program: Program, branch: Path, tenure: Tenure) -> None:
        self.program, self.branch, self.tenure = program, branch, tenure
        self.follower = Follower.of(session, tenure, branch)
        self.generator = Generator(session, program, branch, tenure)
        self._dispatcher = Dispatcher(session, program, branch)
        self._session = session
        self._gone = anyio.Event()

    @property
    def abandoned(self) -> list[str]:
        """Tools that run on and that nobody waits for any more."""
        return self._dispatcher.abandoned

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Prefill ahead, and be there for other tasks, until cancelled."""
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await self.follower.run()
        finally:
            self._gone.set()

    def call(self, command: CallTool, guessed: PredictedResult | None) -> None:
        """Start a tool call, whose result is ``guessed``."""
        self._dispatcher.start(self._tasks, command, guessed, self.tenure.as_parent)

    def expect(self, seconds: float | None) -> None:
        """The lane's chains are wanted again in ``seconds``, None if that is not known."""
        self._tasks.start_soon(self._expect, seconds)

    async def _expect(self, seconds: float | None) -> None:
        # A hint to the engine: one that does not take it, or is gone, says so to the next request.
        with suppress(EngineError):
            await self.tenure.waiting(seconds)

    def start(self, work: Callable[[], Awaitable[News]], name: str) -> None:
        """Start a task whose outcome, or error, is reported. Not every error is the branch's own: the journal's ends
        the run at once, and so does that of an engine that is gone or does not take the run.
        """
        self._tasks.start_soon(self._report, work, name=name)

    async def _report(self, work: Callable[[], Awaitable[News]]) -> None:
        try:
            self._session.report(self.branch, await work())
        except StoreError:
            raise
        except (AdmissionRefused, EngineUnavailable) as error:
            self._session.report((), error)
        except AgentKVError as error:
            self._session.report(self.branch, error)

    async def stop(self) -> None:
        """End everything that the lane has under way; its requests are out of the engine then.

        Waits for tools to end no longer than ``tools.attended`` does.
        """
        self._tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._gone.wait()
