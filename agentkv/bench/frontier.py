"""Tasks per minute against p95 TTFT after a tool, over the number of concurrent agents."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentkv.bench.measure import Repetition
from agentkv.bench.results import figure_at, merge, spread
from agentkv.counted import counted

__all__ = ("DEFAULT_BOUND_MS", "FIGURES", "Values", "best_line", "frontier_json", "frontier_lines", "frontier_of")

# What p95 TTFT after a tool may be, unless it is said.
DEFAULT_BOUND_MS = 200.0
# Of each figure of a point its value in each repetition.
Values = Mapping[str, Sequence[float | None]]
# What a point says, and how it is found in a repetition's figures.
FIGURES: dict[str, tuple[str, ...]] = {
    "tasks_per_minute": ("tasks_per_minute",),
    "ttft_after_tool_p50_ms": ("ttft_after_tool_ms", "p50"),
    "ttft_after_tool_p95_ms": ("ttft_after_tool_ms", "p95"),
    "ttft_first_p95_ms": ("ttft_first_ms", "p95"),
    "task_p50_s": ("task_s", "p50"),
    "tasks": ("task_s", "n"),
    "censored": ("censored", "after_tool"),
    "turns_after_tool": ("ttft_after_tool_ms", "n"),
    "recomputed": ("recomputed_after_eviction",),
    "window_s": ("window_s",),
}


def frontier_json(bound_ms: float, found: Mapping[str, Mapping[int, Sequence[Repetition]]]) -> dict[str, Any]:
    """The frontier of repetitions by mode and agents, as ``frontier_of`` has it."""
    return frontier_of(
        bound_ms,
        {name: {agents: _values(each) for agents, each in by_agents.items()} for name, by_agents in found.items()},
    )


def frontier_of(bound_ms: float, found: Mapping[str, Mapping[int, Values]]) -> dict[str, Any]:
    """Per mode its points in order of agents, and ``best``: the most tasks a minute with p95 within the bound.

    ``found`` has by mode and number of agents the values of ``FIGURES``, milliseconds, seconds and tokens. Each figure
    of a point is the median of its repetitions, ``spread`` has the others.
    """
    modes = {}
    for name, by_agents in found.items():
        points = [_point(agents, bound_ms, by_agents[agents]) for agents in sorted(by_agents)]
        within = [point for point in points if point["within_bound"]]
        modes[name] = {
            "points": points,
            "best": max(within, key=lambda point: point["tasks_per_minute"]) if within else None,
        }
    return {"bound_ms": bound_ms, "modes": modes}


def _values(repetitions: Sequence[Repetition]) -> Values:
    each = [repetition.to_json() for repetition in repetitions]
    return {name: [figure_at(one, path) for one in each] for name, path in FIGURES.items()}


def _point(agents: int, bound_ms: float, values: Values) -> dict[str, Any]:
    found = {name: merge(listed) for name, listed in values.items()}
    p95 = found["ttft_after_tool_p95_ms"]
    return {
        "agents": agents,
        **found,
        "within_bound": p95 is not None and p95 <= bound_ms and found["tasks_per_minute"] > 0,
        "spread": {name: spread(listed) for name, listed in values.items()},
    }


def frontier_lines(found: Mapping[str, Any]) -> list[str]:
    """The frontier for a terminal: a line a mode with its best point, and one with all of them."""
    lines = [f"frontier: most tasks per minute with p95 TTFT after a tool within {found['bound_ms']:g} ms"]
    for name, mode in found["modes"].items():
        lines.append(best_line(name, mode["best"]))
        lines.append("  " + ", ".join(map(_point_text, mode["points"])))
    return lines


def best_line(name: str, best: Mapping[str, Any] | None) -> str:
    """A mode's best point in words; None: it has none."""
    if best is None:
        return f"{name}: no point is within the bound"
    p95 = best["ttft_after_tool_p95_ms"]
    return f"{name}: {best['tasks_per_minute']:,.1f} with {counted(best['agents'], 'agent')} (p95 {p95:,.0f} ms)"


def _point_text(point: Mapping[str, Any]) -> str:
    p95 = point["ttft_after_tool_p95_ms"]
    late = "-" if p95 is None else f"{p95:,.0f} ms"
    return f"{counted(point['agents'], 'agent')}: {point['tasks_per_minute']:,.1f} at {late}"
