"""The whole benchmark: floor, trials of caps, interleaved repetitions, one result."""

import math
import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from attrs import asdict, evolve, field, frozen

from agentkv.bench.cap import best_cap, candidate_caps
from agentkv.bench.commit import own_commit
from agentkv.bench.floor import Floor, measure_floor
from agentkv.bench.frontier import DEFAULT_BOUND_MS, frontier_json
from agentkv.bench.hosting import EngineHost
from agentkv.bench.lengths import at_least
from agentkv.bench.machine import machine_json, versions_json
from agentkv.bench.measure import Repetition
from agentkv.bench.modes import ModeConfig
from agentkv.bench.offload import require_offload
from agentkv.bench.repetition import run_repetition
from agentkv.bench.results import SCHEMA, mode_json, ratios
from agentkv.bench.steady import Steady
from agentkv.bench.workload import Workload
from agentkv.counted import counted
from agentkv.engines import Engine, EngineInfo
from agentkv.errors import SetupError

__all__ = ("Benchmark", "run_benchmark")

PROGRESS_SECONDS = 5.0
# A pool that holds all agents many times over.
LARGEST_POOL = 1000
# Repetitions by mode and number of agents (0: those of the workload, each once).
Found = dict[str, dict[int, list[Repetition]]]


@frozen(kw_only=True)
class Benchmark:
    """What to run. ``pool`` is a share of the working set, None for the engine's own size.

    ``block`` is the KV block in tokens, ``options`` go to the engine as they are and win over what follows
    from the workload, ``warm_up`` counts requests after each start that are not measured. With ``duration`` agents
    that end are replaced, see ``Steady``; ``frontier`` are the numbers of agents that are tried so, and
    ``bound_ms`` is what p95 TTFT after a tool may be there.
    Raises ``SetupError`` for a number out of bounds, ``NotSupported`` for a mode that the engine cannot have.
    """

    engine: str
    workload: Workload
    modes: Mapping[str, ModeConfig]
    pool: float | None = None
    block: int = at_least(1, default=32)
    repeat: int = at_least(1, default=1)
    floor_samples: int = at_least(0, default=20)
    warm_up: int = at_least(0, default=20)
    options: Mapping[str, Any] = field(factory=dict)
    duration: float | None = None
    settle: float | None = None
    frontier: tuple[int, ...] = ()
    bound_ms: float = DEFAULT_BOUND_MS

    def __attrs_post_init__(self) -> None:
        if self.pool is not None and not 0 < self.pool <= LARGEST_POOL:
            raise SetupError(
                f"pool={self.pool:g} must be above 0 and at most {LARGEST_POOL}: a share of the working set"
            )
        if not 0 < self.bound_ms < math.inf:
            raise SetupError(f"bound_ms={self.bound_ms:g} must be above 0")
        self._check_loads()
        if any(mode.offload for mode in self.modes.values()):
            require_offload(self.engine)

    def _check_loads(self) -> None:
        if self.duration is None:
            for name, given in (("frontier", bool(self.frontier)), ("settle", self.settle is not None)):
                if given:
                    raise SetupError(f"{name}: a steady load has a duration; give --duration SECONDS")
        if self.frontier and not self.waits_for_tools:
            raise SetupError(
                "frontier: it bounds TTFT after a tool, and no agent of this workload waits for a tool; give them "
                "some, or leave it out"
            )
        if len(set(self.frontier)) < len(self.frontier):
            raise SetupError("frontier: a number of agents is listed twice; --repeat measures it more often")
        for steady in self.loads:
            if steady is not None:
                steady.check(self.workload)

    @property
    def resumes_per_agent(self) -> float:
        """Generations behind tools' results, on average."""
        resumes = sum(wait.source == "tool" for plan in self.workload.plans for wait in plan.waits)
        return round(resumes / len(self.workload.plans), 4)

    @property
    def waits_for_tools(self) -> bool:
        """Whether any agent does; without, there is no resume to give a floor, and no frontier."""
        return any(wait.source == "tool" for plan in self.workload.plans for wait in plan.waits)

    @property
    def loads(self) -> tuple[Steady | None, ...]:
        """The steady loads to measure, the largest last; None: every agent once, to its end."""
        if self.duration is None:
            return (None,)
        settle = {} if self.settle is None else {"settle": self.settle}
        agents = sorted(self.frontier) or [len(self.workload.plans)]
        return tuple(Steady(agents=number, duration=self.duration, **settle) for number in agents)


async def run_benchmark(
    bench: Benchmark, progress: Callable[[str], None], keep: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Run it and return the machine form of the result; ``progress`` gets a line now and then.

    ``keep`` gets the result so far after each repetition but the last, with those modes in it that have been
    measured, and ``"complete": False``. Raises what the engine raises when it does not start or fails a request.
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
        return await _Run(bench, host, progress, keep).run()


class _Run:
    def __init__(
        self,
        bench: Benchmark,
        host: EngineHost,
        progress: Callable[[str], None],
        keep: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self._bench, self._host, self._progress, self._keep = bench, host, progress, keep
        self._salts = 0
        # Now: by the end somebody may have committed what is not what runs here.
        self._commit = own_commit()

    async def run(self) -> dict[str, Any]:
        bench = self._bench
        samples = bench.floor_samples if bench.waits_for_tools else 0
        # The floor is what an engine gives that is left as it is, whatever the modes.
        first = next(iter(bench.modes.values()))
        engine = await (self._host.get(None) if samples else self._engine_of(first))
        info = engine.info
        if bench.floor_samples:
            floor_of = (
                f"{counted(samples, 'resume')} on the idle engine" if samples else "none, as no agent waits for a tool"
            )
            self._progress(f"floor: {floor_of}")
        floor = await measure_floor(engine, bench.workload, samples)
        trials: dict[str, list[dict[str, Any]]] = {}
        modes = {name: await self._settled(name, mode, info, trials) for name, mode in bench.modes.items()}
        found: Found = {}

        def so_far(*, complete: bool) -> dict[str, Any]:
            return self._result(info, floor, modes, trials, found, complete=complete)

        keep = self._keep
        await self._repetitions(modes, found, None if keep is None else lambda: keep(so_far(complete=False)))
        return so_far(complete=True)

    async def _settled(
        self, name: str, mode: ModeConfig, info: EngineInfo, trials: dict[str, list[dict[str, Any]]]
    ) -> ModeConfig:
        """The mode with its cap found, under the largest load: a fixed limit is the same at every load."""
        if mode.cap != "best":
            return mode
        steady = self._bench.loads[-1]

        async def attempt(cap: int) -> Repetition:
            return await self._once(f"{name}, trial of at most {counted(cap, 'agent')}", evolve(mode, cap=cap), steady)

        agents = len(self._bench.workload.plans) if steady is None else steady.agents
        bound = self._bench.bound_ms if self._bench.frontier else None
        cap, trials[name] = await best_cap(candidate_caps(self._bench.workload, info, agents), agents, attempt, bound)
        return evolve(mode, cap=cap)

    async def _repetitions(
        self, modes: Mapping[str, ModeConfig], found: Found, between: Callable[[], None] | None
    ) -> None:
        """Put repetitions into ``found``; ``between`` is called between one and the next.

        Interleaved, so that a machine that grows slower does so for all modes alike.
        """
        bench = self._bench
        for number, steady in product(range(bench.repeat), bench.loads):
            agents = 0 if steady is None else steady.agents
            for name, mode in modes.items():
                if found and between is not None:
                    between()
                once = await self._once(f"{name}, repetition {number + 1} of {bench.repeat}", mode, steady)
                found.setdefault(name, {}).setdefault(agents, []).append(once)

    async def _once(self, title: str, mode: ModeConfig, steady: Steady | None) -> Repetition:
        engine = await self._engine_of(mode)
        self._salts += 1
        if self._bench.frontier and steady is not None:
            title = f"{title}, {counted(steady.agents, 'agent')}"
        ticker = _Ticker(title, self._progress)
        salt = f"bench/{self._salts}"
        found = await run_repetition(engine, self._bench.workload, mode, salt, ticker.ended, steady)
        what = (
            "all agents done after" if steady is None else f"{counted(len(found.tasks), 'agent')} done in a window of"
        )
        self._progress(f"{title}: {what} {found.seconds:,.1f} s of the engine's clock")
        return found

    async def _engine_of(self, mode: ModeConfig) -> Engine:
        return await self._host.get(mode.engine_kv(), mode.engine_options())

    def _result(
        self,
        info: EngineInfo,
        floor: Floor,
        modes: Mapping[str, ModeConfig],
        trials: Mapping[str, Any],
        found: Found,
        *,
        complete: bool,
    ) -> dict[str, Any]:
        bench, idle = self._bench, floor.to_json()
        by_mode = {name: mode_json(modes[name].to_json(), loads[max(loads)]) for name, loads in found.items()}
        for name in trials.keys() & by_mode:
            by_mode[name]["cap_trials"] = trials[name]
        return {
            "schema": SCHEMA,
            "complete": complete,
            "machine": machine_json(),
            "versions": versions_json(info.version, self._commit),
            "workload": {
                "kind": bench.workload.kind,
                **bench.workload.to_json(),
                "pool": bench.pool,
                "working_set_blocks": bench.workload.blocks(info.block_size),
                "resumes_per_agent": bench.resumes_per_agent,
                "text": bench.workload.text,
                "delays": bench.workload.delays,
                "load": self._load_json(),
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
            "frontier": frontier_json(bench.bound_ms, found) if bench.frontier else None,
        }

    def _load_json(self) -> dict[str, Any] | None:
        """The steady load that ``modes`` was measured under; None: every agent once, to its end."""
        steady = self._bench.loads[-1]
        return None if steady is None else asdict(steady)


class _Ticker:
    """Says how far a repetition is, every few seconds of real time."""

    def __init__(self, title: str, progress: Callable[[str], None]) -> None:
        self._title, self._progress = title, progress
        self._began = self._said = time.perf_counter()

    def ended(self, count: int) -> None:
        """``count`` agents are done."""
        now = time.perf_counter()
        if now - self._said >= PROGRESS_SECONDS:
            self._said = now
            self._progress(f"{self._title}: {counted(count, 'agent')} done after {now - self._began:.0f} s")
