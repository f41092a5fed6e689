"""The lanes of a run: the main chain's, and those of its branches as they come and go."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from anyio.abc import TaskGroup

from agentkv.errors import EngineError
from agentkv.graph.path import Path
from agentkv.runtime.heartbeat import Heartbeat
from agentkv.runtime.lane import Lane
from agentkv.runtime.program import Program
from agentkv.runtime.session import Session
from agentkv.runtime.tenure import Tenure

__all__ = ("Lanes",)


class Lanes:
    """Owns the lanes by branch. What they hold in the engine is kept alive from their beginning to their end."""

    def __init__(self, session: Session, program: Program, tenure: Tenure, heartbeat: Heartbeat) -> None:
        self._session, self._heartbeat = session, heartbeat
        self._main = Lane(session, program, (), tenure)
        self._lanes: dict[Path, Lane] = {(): self._main}
        # Those that have a lane, or had one within, by the branch that they are branches of.
        self._inner: defaultdict[Path, dict[Path, None]] = defaultdict(dict)
        self._abandoned: list[str] = []

    @property
    def abandoned(self) -> tuple[str, ...]:
        """Tools of all lanes that run on and that nobody waits for any more."""
        return (*self._abandoned, *(tool for lane in self._lanes.values() for tool in lane.abandoned))

    async def begin(self, work: TaskGroup) -> None:
        """Start the main chain's lane in ``work``."""
        self._heartbeat.join(self._main.tenure)
        await work.start(self._main.run)

    def get(self, branch: Path) -> Lane | None:
        """The lane of ``branch`` if there is one."""
        return self._lanes.get(branch)

    async def open(self, work: TaskGroup, branch: Path) -> Lane:
        """The lane of ``branch``, begun in ``work`` if it is not yet."""
        if (lane := self._lanes.get(branch)) is not None:
            return lane
        outer = await self.open(work, branch[:-1])
        program = outer.program.branches[branch[-1].node]
        self._inner[branch[:-1]][branch] = None
        lane = self._lanes[branch] = Lane(self._session, program, branch, outer.tenure.inner())
        self._heartbeat.join(lane.tenure)
        await work.start(lane.run)
        return lane

    async def leave(self, branch: Path) -> None:
        """Stop what ``branch`` and its branches have under way, then give back what they hold."""
        for lane in await self._end(branch):
            # What cannot be given back expires; that is no reason to end the run.
            with suppress(EngineError):
                await lane.tenure.leave()

    async def adopt(self, branch: Path) -> None:
        """Let what ``branch`` holds be held for the chain that it came from. Nothing of it is under way."""
        outer = self._lanes[branch[:-1]].tenure
        for lane in await self._end(branch):
            if lane.branch == branch:
                with suppress(EngineError):
                    await outer.take_over(lane.tenure)

    async def close(self) -> None:
        """The run is over, and nothing of it is under way: give back all that it holds."""
        lanes = [*self._lanes.values()]
        for lane in lanes:
            self._heartbeat.part(lane.tenure)
        # The run's place takes those of its branches with it; what has no place is given back by itself.
        for lane in lanes:
            if lane is self._main or lane.tenure.ticket is None:
                await lane.tenure.leave()

    async def _end(self, branch: Path) -> list[Lane]:
        ended = [*self._from(branch)]
        for lane in ended:
            await lane.stop()
            self._heartbeat.part(lane.tenure)
            self._abandoned += lane.abandoned
            del self._lanes[lane.branch]
            self._inner.pop(lane.branch, None)
        self._inner[branch[:-1]].pop(branch, None)
        return ended

    def _from(self, branch: Path) -> Iterator[Lane]:
        """The lanes of ``branch`` and of its branches, outer ones first."""
        if (lane := self._lanes.get(branch)) is not None:
            yield lane
        for inner in self._inner.get(branch, ()):
            yield from self._from(inner)
