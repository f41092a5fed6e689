"""The tables of docs/tier.md that are simulated."""

from collections.abc import Mapping, Sequence
from typing import Any

from page_tables.cells import after_tool, makespan
from page_tables.table import Row, Table
from page_tables.work import Bench

__all__ = ("TABLES",)

PAGE = "docs/tier.md"
BASE = "seed --engine sim:h200 --block-size 16"
TUNED = f"{BASE} --tool-seconds lognormal:1.2:0.8"
STEADY = f"{TUNED} --frontier 60 --duration 48 --settle-seconds 14 --start-spread 8"
SHARES = {"quarter": 0.25, "half": 0.5, "whole": 1.0}
ONE, TWO = "bidirectional", "bidirectional+tier"


def to_the_end(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Makespan, tasks a minute and TTFT after a tool."""
    (mode,) = modes
    return [f"{makespan(mode)} s", f"{mode['tasks_per_minute']:.1f}", f"{after_tool(mode)} ms"]


def steady(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tasks a minute and p95 of TTFT after a tool."""
    (mode,) = modes
    return [f"{mode['tasks_per_minute']:.1f}", f"{mode['ttft_after_tool_ms']['p95']:,.0f} ms"]


def _row(agents: str, pool: str, mode: str, command: str, memory: str) -> Row:
    tier = f" --cpu-tier-bytes {memory}" if mode == TWO else ""
    work = Bench(f"{command} --chains {agents.partition(' ')[0]} --pool {SHARES[pool]}{tier}", mode)
    return Row((agents, pool, f"`{mode}`"), (work,), cheap=agents == "30" and mode == TWO)


def _limited(pool: str, cap: int) -> Row:
    work = Bench(f"{STEADY} --pool {SHARES[pool]} --cap {cap}", "stock+cap")
    return Row((pool, f"`stock+cap`, at most {cap}"), (work,))


def _tiered(pool: str) -> Row:
    return Row((pool, f"`{TWO}`"), (Bench(f"{STEADY} --pool {SHARES[pool]} --cpu-tier-bytes 96GiB", TWO),))


TABLES = (
    Table(
        name="tier",
        page=PAGE,
        header=("agents", "pool", "", "makespan", "tasks/min", "TTFT after tool p50 / p95"),
        rows=(
            _row("30", "half", ONE, TUNED, "32GiB"),
            _row("30", "half", TWO, TUNED, "32GiB"),
            _row("30", "whole", ONE, TUNED, "32GiB"),
            *(
                _row("60 (*)", pool, mode, f"{BASE} --tool-seconds 1:3 --seed 3", "96GiB")
                for pool, mode in (("half", ONE), ("half", TWO), ("whole", ONE))
            ),
            *(
                _row("100", pool, mode, TUNED, "96GiB")
                for pool, mode in (("quarter", ONE), ("quarter", TWO), ("half", ONE), ("half", TWO), ("whole", ONE))
            ),
        ),
        cells=to_the_end,
    ),
    Table(
        name="tier-steady",
        page=PAGE,
        header=("pool", "", "tasks/min", "p95 TTFT after tool"),
        rows=(
            _limited("whole", 60),
            _limited("half", 40),
            _limited("half", 50),
            _tiered("half"),
            _limited("quarter", 20),
            _limited("quarter", 25),
            _tiered("quarter"),
        ),
        cells=steady,
    ),
)
