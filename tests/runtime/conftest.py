"""What the tests of runs share: a runtime on the simulated engine, and a look into its journal."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import agentkv as akv
from agentkv.engines.sim import SimEngine
from agentkv.runtime import from_journal, replay
from agentkv.runtime.run import Run
from agentkv.store import MemoryStore
from agentkv.testing import sim

Open = Callable[..., AbstractAsyncContextManager[akv.Runtime]]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def runtime(store: MemoryStore) -> Open:
    """Open a runtime whose model follows a script; ``engine`` options go to the simulated engine."""

    @asynccontextmanager
    async def open_runtime(
        script: Any = None, *, engine: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[akv.Runtime]:
        async with akv.Runtime(sim(script, **(engine or {})), store=store, **options) as rt:
            yield rt
            await check_idle(rt)

    return open_runtime


async def check_idle(rt: akv.Runtime) -> None:
    """Nothing is left in the engine."""
    stats = await rt.engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)
    assert isinstance(rt.engine, SimEngine)
    rt.engine.check_integrity()


async def check_journal(store: MemoryStore, run: Run[Any]) -> None:
    """The journal gives back the state that the run has."""
    events = [from_journal(entry) for entry in await store.load(run.id)]
    assert replay(run._program, events) == run.state
