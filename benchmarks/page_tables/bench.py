"""The simulated tables of docs/bench.md."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from agentkv.bench.calibrate import compare, fit_machine, read_measured, write_preset
from page_tables.cells import percent
from page_tables.table import Row, Table
from page_tables.work import Bench, Call

__all__ = ("TABLES",)

PAGE = "docs/bench.md"
BENCHMARKS = Path(__file__).parents[1]
RESULTS, MACHINES = BENCHMARKS / "results", BENCHMARKS / "machines"
KVCOMM = "fanout --engine sim:h200 --chains 3 --start-spread 60 --shape kvcomm"
APART = f"{KVCOMM} --shared-tokens 0 --branch-tokens 1000"
SET_BY_HAND, FITTED = "h200", "2026-11-30-h200.json"
RUNS = {
    "`stock`, pool 100 %": "2026-11-29-h200-seed-pool100",
    "`stock`, pool 50 %": "2026-11-29-h200-seed-pool50-stock",
    "at most 50 agents, pool 50 %": "2026-11-29-h200-seed-pool50-cap-bidirectional",
}
CPU, H200 = "2026-11-29-cpu-calibrate", "2026-11-30-h200-calibrate"


def fanned_out(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT by agent and at the join, tokens computed between ask and first token, and in all."""
    (mode,) = modes
    agents = [round_["ttft_ms"]["p50"] for round_ in mode["rounds"] if round_["source"] == "branch"]
    asked = sum(mode["tokens_by_source"][source]["computed"] for source in ("branch", "join"))
    return [
        ", ".join(f"{ms:.0f}" for ms in agents),
        f"{mode['ttft_join_ms']['p50']:.0f}",
        f"{asked:,}",
        f"{mode['computed_total']:,}",
    ]


def fitted(runs: str, name: str) -> dict[str, Any]:
    """One of the runs of a machine, held against the simulated one that was fitted to the first of them."""
    with TemporaryDirectory() as folder:
        preset, source = Path(folder) / "fitted.json", read_measured(RESULTS / f"{runs}-fit.json")
        write_preset(preset, fit_machine(source), source)
        return anyio.run(partial(_compared, preset, f"{runs}-{name}"))


def against(preset: str, name: str) -> dict[str, Any]:
    """A run of the H200, held against a preset, or a file in benchmarks/machines."""
    found = Path(preset) if preset == SET_BY_HAND else MACHINES / preset
    return anyio.run(partial(_compared, found, name))


async def _compared(preset: Path, name: str) -> dict[str, Any]:
    return await compare(preset, read_measured(RESULTS / f"{name}.json"), lambda _: None)


def compared(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """For p50 and p95, ms measured and simulated, and the error."""
    (row,) = found
    cells: list[str] = []
    for each in (row["p50"], row["p95"]):
        cells += [f"{each['measured']:,.0f}", f"{each['simulated']:,.0f}", percent(each["error"], "+")]
    return cells


ERRORS = ("p50", "simulated", "error", "p95", "simulated", "error")
TABLES = (
    Table(
        name="kvcomm",
        page=PAGE,
        header=("prompts", "mode", "agents 2, 3, 4, 5", "join", "computed when asked", "computed in all"),
        rows=(
            Row(("512 tokens shared", "`stock`"), (Bench(KVCOMM, "stock"),)),
            Row(("", "`bidirectional`"), (Bench(KVCOMM, "bidirectional"),), cheap=True),
            Row(("nothing shared", "`stock`"), (Bench(APART, "stock"),)),
            Row(("", "`bidirectional`"), (Bench(APART, "bidirectional"),)),
        ),
        cells=fanned_out,
    ),
    Table(
        name="calibrated",
        page=PAGE,
        header=("run", *ERRORS),
        rows=(
            Row(("CPU: 6 agents, prompts of 800 tokens (fitted)",), (Call(fitted, (CPU, "fit")),), cheap=True),
            Row(("4 agents, prompts of 1,600 tokens",), (Call(fitted, (CPU, "long")),), cheap=True),
            Row(("10 agents, prompts of 400 tokens",), (Call(fitted, (CPU, "many")),), cheap=True),
            Row(("H200: 40 agents, results of 50 to 1,200 tokens (fitted)",), (Call(fitted, (H200, "fit")),)),
            Row(("20 agents, results of 1,500 to 2,500 tokens",), (Call(fitted, (H200, "long")),), cheap=True),
            Row(("80 agents, results of 300 tokens",), (Call(fitted, (H200, "many")),)),
            Row(("100 agents, 8 calls, results of 300 tokens",), (Call(fitted, (H200, "seed100")),)),
        ),
        cells=compared,
    ),
    Table(
        name="preset",
        page=PAGE,
        header=("machine", "run on the H200", *ERRORS),
        rows=tuple(
            Row((machine if place == 0 else "", label), (Call(against, (preset, name)),))
            for machine, preset in (("`h200`", SET_BY_HAND), ("fitted", FITTED))
            for place, (label, name) in enumerate(RUNS.items())
        ),
        cells=compared,
    ),
)
