"""The tables of docs/leases.md."""

from collections.abc import Mapping, Sequence
from math import inf
from statistics import fmean
from typing import Any

import anyio

from agentkv.kv import PolicySettings
from page_tables.cells import after_tool, makespan, pair
from page_tables.from_tests import from_tests
from page_tables.table import Row, Table
from page_tables.work import Bench, Call

__all__ = ("TABLES",)

PAGE = "docs/leases.md"
SEED = "seed --engine sim:h200 --tool-seconds lognormal:1.2:0.8"
HALF = f"{SEED} --pool 0.5"
REPLAY = (
    "replay --engine sim:h200 --trace {bundle}/traces/taubench.jsonl.gz {bundle}/traces/sweagent.jsonl.gz"
    " {bundle}/traces/miniswe.jsonl.gz {bundle}/traces/bfcl.jsonl.gz --think-times {bundle}/think_times"
    " --tokenizer {bundle}/tokenizer --delay-scale 0.05 --delay-cap 4 --max-tokens 16000 --chains 60"
)
# Share of the engine's time up to which cold prompts get parts of steps: 0 never gives any.
BUSY = "agentkv.kv.step_shares.BUSY"


def half(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """First TTFT, TTFT after a tool, makespan, computed tokens, and blocks that leases lost."""
    (mode,) = modes
    lost = sum(blocks for name, blocks in mode["evictions"].items() if name != "unleased")
    leased = f"{lost:,}" if mode["config"]["leases"] else "–"
    return [pair(mode["ttft_first_ms"]), after_tool(mode), makespan(mode), f"{mode['computed_total']:,}", leased]


def looking_ahead(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT after a tool and makespan of each mode; the limit found for the first, and the quickest one tried."""
    first, *others = replayed(modes)
    return [f"{first} ({modes[0]['config']['cap']})", quickest(modes[0]["cap_trials"]), *others]


def quickest(trials: Sequence[Mapping[str, Any]]) -> str:
    """Of the limits tried, p95 TTFT after a tool and makespan of the one with which all were done first."""
    best = min(trials, key=lambda trial: float(trial["makespan_s"]))
    return f"{best['ttft_p95_ms']:,.0f}, {makespan(best)} s ({best['cap']})"


def parts_of_steps(draws: Sequence[Mapping[str, Any]]) -> list[str]:
    """Means over draws: p95 of all TTFT, TTFT after a tool, task time, makespan."""

    def mean(figure: str, percent: str, digits: int = 0) -> str:
        return f"{fmean(draw[figure][percent] for draw in draws):,.{digits}f}"

    return [
        mean("ttft_ms", "p95"),
        " / ".join(mean("ttft_after_tool_ms", percent) for percent in ("p50", "p95")),
        " / ".join(mean("task_s", percent, 1) for percent in ("p50", "p95")),
        f"{fmean(draw['makespan_s'] for draw in draws):.1f}",
    ]


def replayed(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT after a tool and makespan of each."""
    return [f"{after_tool(mode)}, {makespan(mode)} s" for mode in modes]


def pressed(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT after a tool, makespan, hit share and computed tokens of a load."""
    (found,) = modes
    return [pair(found["ms"]), makespan(found), f"{found['hit']:.3f}", f"{found['computed']:,}"]


def press(ratio: float, settings: tuple[tuple[str, Any], ...] | None) -> dict[str, Any]:
    """The load that the tests of pool pressure use; with None the engine is left as it is."""
    tests = from_tests("sim.test_pool_pressure")
    policy = None if settings is None else PolicySettings(**dict(settings))
    found = anyio.run(tests.Load(tests.Shape(agents=100), ratio, policy).run)
    return {
        "ms": {f"p{percent}": 1e3 * found.ttft(percent) for percent in (50, 95)},
        "makespan_s": found.makespan,
        "hit": found.cached / found.prompt,
        "computed": found.prompt - found.cached,
    }


def _draws(share: str, *busy: float) -> tuple[Bench, ...]:
    constants = tuple((BUSY, limit) for limit in busy)
    return tuple(
        Bench(f"{SEED} --pool {share} --seed {seed}", "bidirectional", constants=constants) for seed in range(8)
    )


def _ahead(workload: str, share: str) -> Row:
    command = f"{workload} --pool {share}"
    works = (
        Bench(command, "stock+cap"),
        Bench(command, "bidirectional", settings=(("peak_ratio", 0.0),)),
        Bench(command, "bidirectional"),
    )
    return Row((f"`{workload.partition(' ')[0]}`, {float(share):.0%}".replace("%", " %"),), works)


NO_LEASES, NO_ADMISSION = ("prefix_cache_mode", "independent"), ("admission", "none")

TABLES = (
    Table(
        name="looking-ahead",
        page=PAGE,
        header=(
            "workload, pool",
            "`stock+cap` (limit)",
            "the quickest limit tried: p95",
            "`bidirectional`, all ends",
            "`bidirectional`, looking ahead",
        ),
        rows=tuple(_ahead(workload, share) for workload in (SEED, REPLAY) for share in ("0.5", "0.25")),
        cells=looking_ahead,
    ),
    Table(
        name="parts-of-steps",
        page=PAGE,
        header=(
            "pool (`--pool`)",
            "parts",
            "all TTFT p95, ms",
            "after a tool p50 / p95, ms",
            "task p50 / p95, s",
            "makespan, s",
        ),
        rows=(
            Row(("for all (1.1)", "never"), _draws("1.1", 0.0)),
            Row(("", "always"), _draws("1.1", inf)),
            Row(("", "where there is time"), _draws("1.1")),
            Row(("half (0.5)", "never"), _draws("0.5", 0.0)),
            Row(("", "always"), _draws("0.5", inf)),
            Row(("", "where there is time"), _draws("0.5")),
        ),
        cells=parts_of_steps,
    ),
    Table(
        name="parts-on-replay",
        page=PAGE,
        header=("pool", "never", "always", "where there is time"),
        rows=tuple(
            Row(
                (pool,),
                (
                    Bench(f"{REPLAY} --pool {share}", "bidirectional", constants=((BUSY, 0.0),)),
                    Bench(f"{REPLAY} --pool {share}", "bidirectional", constants=((BUSY, inf),)),
                    Bench(f"{REPLAY} --pool {share}", "bidirectional"),
                ),
            )
            for pool, share in (("half", 0.5), ("quarter", 0.25))
        ),
        cells=replayed,
    ),
    Table(
        name="half-the-pool",
        page=PAGE,
        header=(
            "mode",
            "first TTFT p50 / p95, ms",
            "after a tool p50 / p95, ms",
            "makespan, s",
            "computed tokens",
            "leased blocks evicted",
        ),
        rows=(
            Row(("`stock`",), (Bench(HALF, "stock"),)),
            Row(
                ("follower alone, `--no-leases --no-admission`",),
                (Bench(f"{HALF} --no-leases --no-admission", "bidirectional"),),
            ),
            Row(("without admission, `--no-admission`",), (Bench(f"{HALF} --no-admission", "bidirectional"),)),
            Row(("without follower, `--no-follower`",), (Bench(f"{HALF} --no-follower", "bidirectional"),)),
            Row(("all of it",), (Bench(HALF, "bidirectional"),), cheap=True),
        ),
        cells=half,
    ),
    Table(
        name="parts-alone",
        page=PAGE,
        header=("in force", "after a tool p50 / p95, ms", "makespan, s", "hit share", "computed tokens"),
        rows=(
            Row(("nothing",), (Call(press, (0.5, None)),)),
            Row(("order of work",), (Call(press, (0.5, (NO_LEASES, NO_ADMISSION))),)),
            Row(("order and leases",), (Call(press, (0.5, (NO_ADMISSION,))),)),
            Row(("order and admission",), (Call(press, (0.5, (NO_LEASES,))),)),
            Row(("order, leases and admission",), (Call(press, (0.5, ())),)),
            Row(("nothing, with a pool for all",), (Call(press, (1.0, None)),)),
        ),
        cells=pressed,
    ),
)
