"""What the tests of runs share: a runtime on the simulated engine, and a look into its journal."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import agentkv as akv
from agentkv.engines.sim import SimEngine
from agentkv.follow import Load
from agentkv.kv import PolicySettings
from agentkv.runtime import from_journal, replay
from agentkv.runtime.run import Run
from agentkv.store import MemoryStore
from agentkv.testing import AutoModel, Script

Open = Callable[..., AbstractAsyncContextManager[akv.Runtime]]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(params=[None, PolicySettings()], ids=["stock", "managed"])
def runtime(request: pytest.FixtureRequest, store: MemoryStore) -> Open:
    """Open a runtime whose model follows a script; ``engine`` options go to the simulated engine.

    Once on an engine that schedules by itself, once on one that manages its KV.
    """

    @asynccontextmanager
    async def open_runtime(
        script: Any = None, *, engine: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[akv.Runtime]:
        async with akv.Runtime(managed_sim(script, request.param, engine or {}), store=store, **options) as rt:
            yield rt
            await check_idle(rt)

    return open_runtime


def managed_sim(script: Any, kv: PolicySettings | None, options: dict[str, Any]) -> SimEngine:
    """A simulated engine that manages its KV by ``kv`` (None: not)."""
    responder = script if callable(script) else AutoModel() if script is None else Script(script)
    return SimEngine(responder, **{"kv": kv, **options})


async def check_idle(rt: akv.Runtime) -> None:
    """Nothing is left in the engine but leases on anchors, and nobody uses these; nothing is taken to be in it."""
    # an anchor's lease is the runtime's own request: it may be on its way when the run that wanted it ends
    await rt.engine.clock.sleep(1.0)
    stats = await rt.engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)
    assert stats.get("runs", 0) == 0
    assert set(stats.get("leases_by_class", {})) <= {"anchor"}
    assert not any(anchor.users for anchor in rt._services.anchors._held.values())
    assert not rt._services.live
    assert not rt._services.heartbeat._living
    pace = rt._services.pace
    assert (pace.load, pace._booked, pace._offered, pace._offers) == (Load(), 0, 0, {})
    assert isinstance(rt.engine, SimEngine)
    rt.engine.check_integrity()


async def check_journal(store: MemoryStore, run: Run[Any]) -> None:
    """The journal gives back the state that the run has."""
    events = [from_journal(entry) for entry in await store.load(run.id)]
    assert replay(run._program, events) == run.state
