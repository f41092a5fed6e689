"""Results as a table in the terminal."""

from collections.abc import Mapping
from typing import Any

__all__ = ("table_lines",)

_COLUMNS = (
    ("TTFT ms p50", ("ttft_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_ms", "p95"), "{:,.0f}"),
    ("after tool p50", ("ttft_after_tool_ms", "p50"), "{:,.0f}"),
    ("p95", ("ttft_after_tool_ms", "p95"), "{:,.0f}"),
    ("task s p50", ("task_s", "p50"), "{:,.1f}"),
    ("p95", ("task_s", "p95"), "{:,.1f}"),
    ("makespan s", ("makespan_s",), "{:,.1f}"),
    ("reduction critical", ("reduction", "critical"), "{:.3f}"),
    ("total", ("reduction", "total"), "{:.3f}"),
    ("wasted", ("tokens", "wasted"), "{:,.0f}"),
)


def table_lines(result: Mapping[str, Any]) -> list[str]:
    """A line a mode, then the floor, then the ratios over ``stock``."""
    rows = [["mode", *(title for title, _, _ in _COLUMNS)]]
    rows += [[_title(name, mode), *_cells(mode)] for name, mode in result["modes"].items()]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(_pad(cell, widths[at], left=at == 0) for at, cell in enumerate(row)) for row in rows]
    return [*lines, "", *_floor(result), *_ratios(result["ratios"])]


def _title(name: str, mode: Mapping[str, Any]) -> str:
    cap = mode["config"]["cap"]
    return name if cap is None else f"{name} ({cap})"


def _cells(mode: Mapping[str, Any]) -> list[str]:
    cells = []
    for _, path, form in _COLUMNS:
        value: Any = mode
        for key in path:
            value = value[key]
        cells.append("-" if value is None else form.format(value))
    return cells


def _pad(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)


def _floor(result: Mapping[str, Any]) -> list[str]:
    floor, ideal = result["floor_ms"], result["ideal_ms"]
    if not floor["n"]:
        return []
    idle = (
        f"floor {floor['p50']:,.1f} / {floor['p95']:,.1f} ms, ideal {ideal['p50']:,.1f} / {ideal['p95']:,.1f} ms "
        f"(p50 / p95 of {floor['n']} resumes on the idle engine)"
    )
    return [idle]


def _ratios(ratios: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    return [
        f"{name}: " + ", ".join(f"{what} {value:.3f}" for what, value in found.items() if value is not None)
        for name, found in ratios.items()
        if any(value is not None for value in found.values())
    ]
