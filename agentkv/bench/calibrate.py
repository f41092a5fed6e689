"""A simulated machine from a measured run, and how near it comes to others."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from attrs import asdict, evolve, fields, frozen

from agentkv.bench.delay import Delay
from agentkv.bench.modes import ModeConfig
from agentkv.bench.runner import Benchmark, run_benchmark
from agentkv.bench.seed import SeedShape
from agentkv.bench.step_fit import fit_steps, read_steps, wait_for_step
from agentkv.bench.step_log import StepRow
from agentkv.engines.sim_machine import Machine, StepCost
from agentkv.engines.sim_preset import find_preset, preset_json
from agentkv.errors import SetupError

__all__ = ("Measured", "compare", "fit_machine", "read_measured", "write_preset")

IDEAL_TOKENS = 16
PERCENTS = ("p50", "p95")
# A p95 of 60 resumes is three of them, and steps a hundredth longer make it another three: the middle one of several
# runs is what a machine gives. Odd, so that there is one.
SPEEDS = (0.98, 0.99, 1.0, 1.01, 1.02)


@frozen
class Measured:
    """A result of ``agentkv bench seed`` on a real engine, and its mode that is fitted from: one without prefetches."""

    name: str
    result: Mapping[str, Any]
    mode: str

    @property
    def engine(self) -> Mapping[str, Any]:
        """What the engine said about itself."""
        found: Mapping[str, Any] = self.result["engine"]
        return found

    @property
    def figures(self) -> Mapping[str, Any]:
        """Those of the mode."""
        found: Mapping[str, Any] = self.result["modes"][self.mode]
        return found


def read_measured(path: Path) -> Measured:
    """Raises ``SetupError`` for a file that is not there or no result, or one that cannot be fitted or simulated."""
    if not path.is_file():
        raise SetupError(f"there is no file {str(path)!r}; agentkv bench seed --json {path} writes one")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        kind, load = result["workload"]["kind"], result["workload"].get("load")
        modes = {name: bool(found["config"]["follow"]) for name, found in result["modes"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SetupError(f"{str(path)!r} is no result of agentkv bench: {error}") from error
    if kind != "seed" or load:
        raise SetupError(f"{str(path)!r}: only seed workloads that run to their end can be simulated again")
    mode = next((name for name, follows in modes.items() if not follows), None)
    if mode is None:
        raise SetupError(f"{str(path)!r} has no mode without prefetches; measure 'stock' or 'stock+cap'")
    return Measured(path.stem, result, mode)


def fit_machine(measured: Measured) -> Machine:
    """The machine whose steps are those of the run. Raises ``SetupError`` where the result lacks them."""
    engine, step_tokens = measured.engine, measured.engine.get("max_num_batched_tokens")
    if step_tokens is None:
        raise SetupError(f"{measured.name!r} does not say what a step holds: measure it again with this version")
    asynchronous = engine["capabilities"].get("async_scheduling") == "on"
    machine = Machine(
        cost=fit_steps(read_steps(measured.figures), asynchronous=asynchronous),
        block_size=engine["block_size"],
        pool_blocks=engine["pool_blocks"],
        max_model_len=engine["max_model_len"],
        max_num_batched_tokens=step_tokens,
        max_num_seqs=engine["max_num_seqs"],
        kv_bytes_per_token=engine["kv_bytes_per_token"] or 0,
        async_scheduling=asynchronous,
    )
    return evolve(machine, delivery_s=_delivery(measured, machine))


def write_preset(path: Path, machine: Machine, measured: Measured) -> None:
    """Write the machine to a file that ``sim:FILE`` takes."""
    fitted = {"from": measured.name, "versions": measured.result["versions"], "machine": measured.result["machine"]}
    path.write_text(json.dumps({**preset_json(machine), "fitted": fitted}, indent=1) + "\n", encoding="utf-8")


async def compare(preset: Path, measured: Measured, progress: Callable[[str], None]) -> dict[str, Any]:
    """TTFT after a tool, in ms, as measured and as ``preset`` has it, and the error of each percentile.

    What is simulated is the median of several runs whose steps take up to 2 % less or more.
    """
    cost = find_preset(str(preset)).cost
    runs = [await _simulate(preset, measured, _scaled(cost, speed), progress) for speed in SPEEDS]
    row: dict[str, Any] = {"name": measured.name, "mode": measured.mode}
    for percent in PERCENTS:
        was = measured.figures["ttft_after_tool_ms"][percent]
        found = median(run["ttft_after_tool_ms"][percent] for run in runs)
        row[percent] = {"measured": was, "simulated": found, "error": round(found / was - 1, 4)}
    return row


async def _simulate(
    preset: Path, measured: Measured, cost: StepCost, progress: Callable[[str], None]
) -> Mapping[str, Any]:
    engine = measured.engine
    bench = Benchmark(
        engine=f"sim:{preset}",
        workload=_shape(measured.result["workload"]),
        modes={measured.mode: _mode(measured.figures["config"])},
        block=engine["block_size"],
        floor_samples=0,
        warm_up=0,
        options={"pool_blocks": engine["pool_blocks"], "max_model_len": engine["max_model_len"], "cost": cost},
    )
    found: Mapping[str, Any] = (await run_benchmark(bench, progress))["modes"][measured.mode]
    return found


def _scaled(cost: StepCost, factor: float) -> StepCost:
    return StepCost(**{name: factor * seconds for name, seconds in asdict(cost).items()})


def _delivery(measured: Measured, machine: Machine) -> float:
    """Seconds between processes: what a resume took beyond its steps."""
    parts = [measured.figures["breakdown_ms"][part]["p50"] for part in ("client", "queue", "delivery")]
    if not machine.cost.prefill_host_s or None in parts:
        return _delivery_of_shortest(measured, machine)
    # The shortest one is launched as a graph, of which the model knows nothing. vLLM looks at what was sent between two
    # steps only, so the wait for that is in none of its parts.
    client, queue, delivery = (float(part) / 1e3 for part in parts)
    unseen = max(0.0, wait_for_step(read_steps(measured.figures)) - queue)
    return max(0.0, client + delivery - unseen)


def _delivery_of_shortest(measured: Measured, machine: Machine) -> float:
    """What the shortest resume on the idle engine took beyond its one step."""
    ideal = measured.result["ideal_ms"]["p50"]
    if ideal is None:
        return 0.0
    pairs = IDEAL_TOKENS * measured.result["workload"]["prompt_tokens"]
    took = float(ideal) / 1e3
    step = StepRow(took, decode_seqs=0, context_tokens=0, prefill_tokens=IDEAL_TOKENS, prefill_context=pairs)
    return max(0.0, took - machine.cost.seconds(step))


def _shape(workload: Mapping[str, Any]) -> SeedShape:
    given = {field.name: workload[field.name] for field in fields(SeedShape)}
    return SeedShape(
        **{
            **given,
            "tool_seconds": Delay.parse(given["tool_seconds"]),
            "result_tokens": tuple(given["result_tokens"]),
        }
    )


def _mode(config: Mapping[str, Any]) -> ModeConfig:
    known = {field.name for field in fields(ModeConfig)}
    return ModeConfig(**{name: value for name, value in config.items() if name in known})
