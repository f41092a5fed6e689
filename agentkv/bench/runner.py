"""The whole benchmark: floor, trials of caps, interleaved repetitions, one result."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict, evolve, field, frozen

from agentkv.bench.cap import best_cap, candidate_caps
from agentkv.bench.floor import Floor, measure_floor
from agentkv.bench.hosting import EngineHost
from agentkv.bench.machine import machine_json, versions_json
from agentkv.bench.measure import Repetition
from agentkv.bench.modes import ModeConfig
from agentkv.bench.repetition import run_repetition
from agentkv.bench.results import SCHEMA, mode_json, ratios
from agentkv.bench.workload import Workload
from agentkv.engines import EngineInfo
from agentkv.errors import SetupError

__all__ = ("Benchmark", "run_benchmark")

PROGRESS_SECONDS = 5.0


@frozen(kw_only=True)
class Benchmark:
    """What to run. ``pool`` is a share of the working set, None for the engine's own size.

    ``block`` is the KV block in tokens, ``options`` go to the engine as they are and win over what follows
    from the workload, ``warm_up`` counts requests after each start that are not measured.
    Raises ``SetupError`` for a number out of bounds.
    """

    engine: str
    workload: Workload
    modes: Mapping[str, ModeConfig]
    pool: float | None = None
    block: int = 32
    repeat: int = 1
    floor_samples: int = 20
    warm_up: int = 20
    options: Mapping[str, Any] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, least in (("block", 1), ("repeat", 1), ("floor_samples", 0), ("warm_up", 0)):
            if getattr(self, name) < least:
                raise SetupError(f"{name}={getattr(self, name)} must be at least {least}")
        if self.pool is not None and not self.pool > 0:
            raise SetupError(f"pool={self.pool:g} must be above 0: a share of the working set")


async def run_benchmark(bench: Benchmark, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run it and return the machine form of the result; ``progress`` gets a line now and then.

    Raises what the engine raises when it does not start or fails a request.
    """
    host = EngineHost(
        bench.engine,
        bench.workload,
        block=bench.block,
        pool=bench.pool,
        warm_up=bench.warm_up,
        options=bench.options,
        progress=progress,
    )
    async with host:
        return await _Run(bench, host, progress).run()


class _Run:
    def __init__(self, bench: Benchmark, host: EngineHost, progress: Callable[[str], None]) -> None:
        self._bench, self._host, self._progress = bench, host, progress
        self._salts = 0

    async def run(self) -> dict[str, Any]:
        bench = self._bench
        # The floor is what an engine gives that is left as it is, whatever the modes.
        first = next(iter(bench.modes.values()))
        engine = await self._host.get(None if bench.floor_samples else first.engine_kv())
        info = engine.info
        self._progress(f"floor: {bench.floor_samples} resumes on the idle engine")
        floor = await measure_floor(engine, bench.workload, bench.floor_samples)
        trials: dict[str, list[dict[str, Any]]] = {}
        modes = {name: await self._settled(name, mode, info, trials) for name, mode in bench.modes.items()}
        found = await self._repetitions(modes)
        return self._result(info, floor, modes, trials, found)

    async def _settled(
        self, name: str, mode: ModeConfig, info: EngineInfo, trials: dict[str, list[dict[str, Any]]]
    ) -> ModeConfig:
        """The mode with its cap found."""
        if mode.cap != "best":
            return mode

        async def attempt(cap: int) -> Repetition:
            return await self._once(f"{name}, trial of at most {cap} agents", evolve(mode, cap=cap))

        cap, trials[name] = await best_cap(candidate_caps(self._bench.workload, info), attempt)
        return evolve(mode, cap=cap)

    async def _repetitions(self, modes: Mapping[str, ModeConfig]) -> dict[str, list[Repetition]]:
        """Interleaved, so that a machine that grows slower does so for all modes alike."""
        found: dict[str, list[Repetition]] = {name: [] for name in modes}
        for number in range(self._bench.repeat):
            for name, mode in modes.items():
                title = f"{name}, repetition {number + 1} of {self._bench.repeat}"
                found[name].append(await self._once(title, mode))
        return found

    async def _once(self, title: str, mode: ModeConfig) -> Repetition:
        engine = await self._host.get(mode.engine_kv())
        self._salts += 1
        ticker = _Ticker(title, len(self._bench.workload.plans), self._progress)
        found = await run_repetition(engine, self._bench.workload, mode, f"bench/{self._salts}", ticker.ended)
        self._progress(f"{title}: all agents done after {found.makespan_s:,.1f} s of the engine's clock")
        return found

    def _result(
        self,
        info: EngineInfo,
        floor: Floor,
        modes: Mapping[str, ModeConfig],
        trials: Mapping[str, Any],
        found: Mapping[str, list[Repetition]],
    ) -> dict[str, Any]:
        bench, idle = self._bench, floor.to_json()
        by_mode = {name: mode_json(mode.to_json(), found[name]) for name, mode in modes.items()}
        for name, tried in trials.items():
            by_mode[name]["cap_trials"] = tried
        return {
            "schema": SCHEMA,
            "machine": machine_json(),
            "versions": versions_json(info.version),
            "workload": {
                "kind": bench.workload.kind,
                **bench.workload.to_json(),
                "pool": bench.pool,
                "working_set_blocks": bench.workload.blocks(info.block_size),
                "text": bench.workload.text,
                "delays": bench.workload.delays,
            },
            "engine": {
                "spec": bench.engine,
                "options": dict(self._host.options),
                **asdict(info),
                "capabilities": dict(info.capabilities),
            },
            "modes": by_mode,
            **idle,
            "ratios": ratios(by_mode, idle["floor_ms"]["p50"]),
        }


class _Ticker:
    """Says how far a repetition is, every few seconds of real time."""

    def __init__(self, title: str, chains: int, progress: Callable[[str], None]) -> None:
        self._title, self._chains, self._progress = title, chains, progress
        self._began = self._said = time.perf_counter()

    def ended(self, count: int) -> None:
        """``count`` agents are done."""
        now = time.perf_counter()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            self._progress(f"{self._title}: {count} of {self._chains} agents done after {now - self._began:.0f} s")
