"""Run the workload's agents once in one mode."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from agentkv.bench.agent import BenchAgent
from agentkv.bench.evictions import EvictionLog
from agentkv.bench.measure import Repetition
from agentkv.bench.modes import ModeConfig
from agentkv.bench.series import Sampler
from agentkv.bench.snapshot import Snapshot
from agentkv.bench.stage import Stage
from agentkv.bench.steady import Steady, endless
from agentkv.bench.turn import UnderWay
from agentkv.bench.workload import Workload
from agentkv.engines import Engine
from agentkv.errors import AgentKVError

__all__ = ("run_repetition",)

POLL_SECONDS = 0.1
UNBOUNDED = 1 << 30
# Capabilities that a mode may ask for.
MANAGED = ("leases", "order", "admission")


async def run_repetition(
    engine: Engine,
    workload: Workload,
    mode: ModeConfig,
    salt: str,
    ended: Callable[[int], None],
    steady: Steady | None = None,
) -> Repetition:
    """All agents, from the first one's arrival to the last one's end; or a steady load of them.

    ``ended`` hears how many are done. Raises what the engine raises for the first request that fails.
    """
    stage = Stage(engine, mode, salt, blocks=workload.blocks(engine.info.block_size), ended=ended)
    sampler, began = Sampler(engine), await stage.snapshot()
    evictions = EvictionLog(engine, salt, began.counters["policy"].get("last_record", 0))
    cut: list[UnderWay] = []
    try:
        async with anyio.create_task_group() as around:
            around.start_soon(sampler.run)
            around.start_soon(evictions.run)
            around.start_soon(stage.heartbeat.run)
            if steady is None:
                before, after = began, await _to_the_end(stage, workload)
            else:
                before, after, cut = await _steadily(stage, workload, steady, began.at)
            now = engine.clock.now()
            around.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from group
    await evictions.read()
    return Repetition(
        turns=tuple(turn for turn in stage.turns if before.at <= turn.ready_at <= after.at),
        tasks=tuple(task for task in stage.tasks if before.at <= task.ended_at <= after.at),
        cut=tuple((each.source, each.waited(now), each.first_at is None) for each in cut),
        lived=stage.turns_by_agent(),
        steps=stage.steps.rows(engine.info.max_num_batched_tokens or UNBOUNDED),
        before=before,
        after=after,
        began_at=began.at,
        series=sampler.series(),
        tier=sampler.tier(),
        evicted=evictions.to_json(),
        in_force={name: state for name, state in engine.info.capabilities.items() if name in MANAGED},
        steady=steady,
    )


async def _to_the_end(stage: Stage, workload: Workload) -> Snapshot:
    async with anyio.create_task_group() as agents:
        for plan in workload.plans:
            agents.start_soon(BenchAgent(stage, plan).run)
    # vLLM counts a request's tokens behind the delivery of the last of them.
    at = stage.engine.clock.now()
    await stage.engine.clock.sleep(POLL_SECONDS)
    return await stage.snapshot(at=at)


async def _steadily(
    stage: Stage, workload: Workload, steady: Steady, began_at: float
) -> tuple[Snapshot, Snapshot, list[UnderWay]]:
    """The counters at the two ends of the window; the load is taken away behind it."""
    clock = stage.engine.clock
    async with _load(stage, workload, steady):
        await clock.sleep(began_at + steady.settle - clock.now())
        before = await stage.snapshot()
        await clock.sleep(before.at + steady.window - clock.now())
        after = await stage.snapshot()
        while _waits_still(stage, before.at, after.at) and clock.now() < after.at + steady.window:
            await clock.sleep(POLL_SECONDS)
        cut = stage.cut(before.at, after.at)
        if stage.mode.offload:
            # vLLM 0.26's connector can end its engine when requests are aborted while their KV is copied.
            await stage.close()
    return before, after, cut


def _waits_still(stage: Stage, start: float, end: float) -> bool:
    """Whether a resume that counts has no first token yet; first prompts may wait long for their turn."""
    return any(each.source != "start" and each.first_at is None for each in stage.cut(start, end))


@asynccontextmanager
async def _load(stage: Stage, workload: Workload, steady: Steady) -> AsyncIterator[None]:
    """Keep ``steady.agents`` agents under way while the body runs."""
    plans = endless(workload)

    async def place(starts_at: float) -> None:
        await stage.engine.clock.sleep(starts_at)
        while True:
            await BenchAgent(stage, next(plans)).run()

    async with anyio.create_task_group() as agents:
        for starts_at in steady.starts(workload):
            agents.start_soon(place, starts_at)
        yield
        agents.cancel_scope.cancel()


def _first(error: BaseException) -> BaseException:
    """What went wrong first, in the order in which task groups list it; our own errors before others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, AgentKVError)), leaves[0])
