"""Results as a table in the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentkv.bench.columns import aligned
from agentkv.bench.frontier import frontier_lines
from agentkv.counted import counted

__all__ = ("table_lines", "table_rows")

Column = tuple[str, tuple[str, ...], str]
_COLUMNS: tuple[Column, ...] = (
    ("TTFT ms p50", ("ttft_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_ms", "p95"), "{:,.0f}"),
    ("after tool p50", ("ttft_after_tool_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_after_tool_ms", "p95"), "{:,.0f}"),
    ("branch p50", ("ttft_branch_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_branch_ms", "p95"), "{:,.0f}"),
    ("join p50", ("ttft_join_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_join_ms", "p95"), "{:,.0f}"),
    ("task s p50", ("task_s", "p50"), "{:,.1f}"),
    ("p95", ("task_s", "p95"), "{:,.1f}"),
    ("makespan s", ("makespan_s",), "{:,.1f}"),
    ("tasks/min", ("tasks_per_minute",), "{:,.1f}"),
    ("reduction critical", ("reduction", "critical"), "{:.3f}"),
    ("total", ("reduction", "total"), "{:.3f}"),
    ("recomputed", ("recomputed_after_eviction",), "{:,.0f}"),
    ("wasted", ("tokens", "wasted"), "{:,.0f}"),
)
# What only some workloads have: their columns are left out elsewhere.
_OPTIONAL = ("ttft_after_tool_ms", "ttft_branch_ms", "ttft_join_ms")
_SPREAD = (
    ("after tool p50", "ttft_after_tool_p50"),
    ("p95", "ttft_after_tool_p95"),
    ("branch p50", "ttft_branch_p50"),
    ("join p50", "ttft_join_p50"),
    ("makespan", "makespan"),
)
# The pseudo-modes: what the idle engine makes of the same resumes.
_IDLE = (("floor", "floor_ms"), ("ideal", "ideal_ms"))


def table_lines(result: Mapping[str, Any]) -> list[str]:
    """A line a mode, then what the work was, floor and ideal, spreads, the frontier, the books, and the ratios."""
    frontier = frontier_lines(result["frontier"]) if result["frontier"] else []
    return [
        *aligned(table_rows(result)),
        "",
        *([] if result["complete"] else ["not complete: it was ended before all that was asked for had been measured"]),
        *_work(result["workload"]),
        *_branches(result),
        *_floor(result),
        *_spreads(result["modes"]),
        *_books(result["modes"]),
        *frontier,
        *_ratios(result["ratios"]),
    ]


def table_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """The titles, then a row of cells a mode, then floor and ideal where they were measured."""
    columns = [column for column in _COLUMNS if _is_told(column[1][0], result["modes"])]
    rows = [["mode", *(title for title, _, _ in columns)]]
    rows += [[_title(name, mode), *_cells(mode, columns)] for name, mode in result["modes"].items()]
    idle = {name: {"ttft_after_tool_ms": result[key]} for name, key in _IDLE if result[key]["n"]}
    return rows + [[name, *_cells(figures, columns)] for name, figures in idle.items()]


def _is_told(figures: str, modes: Mapping[str, Mapping[str, Any]]) -> bool:
    return figures not in _OPTIONAL or any(mode[figures]["n"] for mode in modes.values())


def _title(name: str, mode: Mapping[str, Any]) -> str:
    cap = mode["config"]["cap"]
    return name if cap is None else f"{name} ({cap})"


def _cells(mode: Mapping[str, Any], columns: Iterable[Column]) -> list[str]:
    cells = []
    for _, path, form in columns:
        value: Any = mode
        for key in path:
            value = None if value is None else value.get(key)
        cells.append("-" if value is None else form.format(value))
    return cells


def _work(workload: Mapping[str, Any]) -> list[str]:
    return [f"text: {workload['text']}", f"waits: {workload['delays']}"]


def _branches(result: Mapping[str, Any]) -> list[str]:
    """What branches and joins computed when they were asked for, beside what was new in their prompts."""
    new = result["workload"].get("new_tokens")
    if new is None:
        return []
    lines = [f"new in the prompts of branches {new['branch']:,} tokens, of joins {new['join']:,}; computed when asked"]
    for name, mode in result["modes"].items():
        asked = mode["tokens_by_source"]
        if "branch" in asked and "join" in asked:
            each = ", ".join(f"{one['ttft_ms']['p50']:,.0f}" for one in mode["rounds"] if one["source"] == "branch")
            computed = " and ".join(f"{asked[source]['computed']:,.0f}" for source in ("branch", "join"))
            lines.append(f"  {name}: {computed}, {mode['computed_total']:,.0f} in all; p50 by branch, ms: {each}")
    return lines


def _floor(result: Mapping[str, Any]) -> list[str]:
    floor, ideal = result["floor_ms"], result["ideal_ms"]
    if not floor["n"]:
        return []
    idle = (
        f"floor {floor['p50']:,.1f} / {floor['p95']:,.1f} ms, ideal {ideal['p50']:,.1f} / {ideal['p95']:,.1f} ms "
        f"(p50 / p95 of {counted(floor['n'], 'resume')} on the idle engine)"
    )
    return [idle]


def _spreads(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, mode in modes.items():
        found = [(title, mode["spread"][what]) for title, what in _SPREAD]
        told = [f"{title} {each['min']:,.1f} to {each['max']:,.1f}" for title, each in found if each is not None]
        if mode["repetitions"] > 1 and told:
            lines.append(f"{name}, spread of {mode['repetitions']}: {', '.join(told)}")
    return lines


def _books(modes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = [name for name, mode in modes.items() if mode["reconciliation"]["agrees"] is False]
    if not wrong:
        return []
    return [f"the books of client and engine do not agree for {', '.join(wrong)}: see reconciliation in the JSON"]


def _ratios(ratios: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    return [
        f"{name}: " + ", ".join(f"{what} {value:.3f}" for what, value in found.items() if value is not None)
        for name, found in ratios.items()
        if any(value is not None for value in found.values())
    ]
