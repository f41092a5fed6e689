"""Run all agents of the workload once in one mode."""

from collections.abc import Callable
from typing import Any

import anyio

from agentkv.bench.agent import BenchAgent
from agentkv.bench.measure import Repetition
from agentkv.bench.modes import ModeConfig
from agentkv.bench.stage import Stage
from agentkv.bench.workload import Workload
from agentkv.engines import Engine
from agentkv.errors import AgentKVError

__all__ = ("run_repetition",)

SAMPLE_SECONDS = 0.25


async def run_repetition(
    engine: Engine, workload: Workload, mode: ModeConfig, salt: str, ended: Callable[[int], None]
) -> Repetition:
    """All agents, from the first one's arrival to the last one's end. ``ended`` hears how many are done.

    Raises what the engine raises for the first request that fails.
    """
    stage = Stage(engine, mode, salt, blocks=workload.blocks(engine.info.block_size), ended=ended)
    sampler = _Sampler(engine)
    before = await _counters(engine)
    began = engine.clock.now()
    try:
        async with anyio.create_task_group() as around:
            around.start_soon(sampler.run)
            around.start_soon(stage.heartbeat.run)
            async with anyio.create_task_group() as agents:
                for plan in workload.plans:
                    agents.start_soon(BenchAgent(stage, plan).run)
            around.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from group
    return Repetition.of(stage, engine.clock.now() - began, before, await _counters(engine), sampler.samples)


async def _counters(engine: Engine) -> dict[str, Any]:
    """The engine's counters, with those of its KV policy under ``policy`` where it has one."""
    managed = engine.info.capabilities.get("leases") == "on"
    return {**await engine.stats(), "policy": await engine.kv("stats", {}) if managed else {}}


class _Sampler:
    """Looks at the pool four times a second of the engine's clock."""

    def __init__(self, engine: Engine) -> None:
        self.samples: list[tuple[float, float]] = []
        self._engine = engine

    async def run(self) -> None:
        clock = self._engine.clock
        began = clock.now()
        while True:
            stats = await self._engine.stats()
            used = stats["pool_used"] if "pool_used" in stats else 1 - stats["free_blocks"] / stats["pool_blocks"]
            self.samples.append((clock.now() - began, used))
            await clock.sleep(SAMPLE_SECONDS)


def _first(error: BaseException) -> BaseException:
    """What went wrong first, in the order in which task groups list it; our own errors before others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, AgentKVError)), leaves[0])
