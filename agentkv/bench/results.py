"""Repetitions put together: medians with their spread, ratios between modes, the machine form."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from agentkv.bench.measure import Repetition, percentile
from agentkv.bench.modes import rank_of_mode
from agentkv.bench.step_log import steps_json
from agentkv.bench.turn import Source

__all__ = ("RATIOS", "SCHEMA", "figure_at", "merge", "mode_json", "ratios", "spread")

SCHEMA = "agentkv.bench/1"
QUANTILES = 100
# What a ratio between two modes is made of: its name, and the way to the figure.
RATIOS: dict[str, tuple[str, ...]] = {
    "ttft_p50": ("ttft_ms", "p50"),
    "ttft_p95": ("ttft_ms", "p95"),
    "ttft_after_tool_p50": ("ttft_after_tool_ms", "p50"),
    "ttft_after_tool_p95": ("ttft_after_tool_ms", "p95"),
    "ttft_branch_p50": ("ttft_branch_ms", "p50"),
    "ttft_branch_p95": ("ttft_branch_ms", "p95"),
    "ttft_join_p50": ("ttft_join_ms", "p50"),
    "ttft_join_p95": ("ttft_join_ms", "p95"),
    "task_p50": ("task_s", "p50"),
    "task_p95": ("task_s", "p95"),
    "makespan": ("makespan_s",),
    "tasks_per_minute": ("tasks_per_minute",),
    "computed": ("computed_per_prompt_token",),
}


def merge(values: Sequence[Any]) -> Any:
    """The median, leaf by leaf, of equally built values; None where one of them has none. ``n`` is summed."""
    first = values[0]
    if isinstance(first, Mapping):
        # Counters appear with their first event, so that repetitions need not have the same.
        keys = list(dict.fromkeys(key for each in values for key in each))
        return {key: _sum(values) if key == "n" else merge([each.get(key, 0) for each in values]) for key in keys}
    if any(value is None for value in values):
        return None
    return median(values)


def _sum(values: Sequence[Any]) -> int:
    return sum(value["n"] for value in values)


def spread(values: Sequence[Any]) -> dict[str, Any] | None:
    """The least and the largest of a figure's values, and all of them in order of the repetitions."""
    if any(value is None for value in values):
        return None
    return {"min": min(values), "max": max(values), "values": list(values)}


def mode_json(config: Mapping[str, Any], repetitions: Sequence[Repetition]) -> dict[str, Any]:
    """One mode: medians of its repetitions, with the spread of what ratios are made of.

    ``quantiles_after_tool_ms``, those of branches and of joins are over the turns of all repetitions, from the least to
    the longest in steps of a hundredth. ``rounds``, ``occupancy``, ``tier_occupancy``, ``evicted``, ``timeline`` and
    ``steps`` are those of the first repetition.
    """
    each = [_figures(repetition) for repetition in repetitions]
    first = repetitions[0]
    accounts = [repetition.reconciliation() for repetition in repetitions]
    return {
        "config": dict(config),
        "in_force": dict(first.in_force),
        "repetitions": len(each),
        **merge(each),
        "spread": {name: spread([figure_at(one, path) for one in each]) for name, path in RATIOS.items()},
        "quantiles_after_tool_ms": _quantiles(repetitions, "tool"),
        "quantiles_branch_ms": _quantiles(repetitions, "branch"),
        "quantiles_join_ms": _quantiles(repetitions, "join"),
        "rounds": first.rounds(),
        "occupancy": first.series.to_json(),
        "tier_occupancy": first.tier.to_json(),
        "evicted": dict(first.evicted),
        "timeline": first.timeline(),
        "steps": steps_json(first.steps),
        "reconciliation": {"agrees": _all(account["agrees"] for account in accounts), "repetitions": accounts},
    }


def _all(verdicts: Any) -> bool | None:
    """None if there is one that says nothing."""
    found = list(verdicts)
    return None if None in found else all(found)


def _figures(repetition: Repetition) -> dict[str, Any]:
    found = repetition.to_json()
    prompt = found["tokens"]["prompt"]
    return {**found, "computed_per_prompt_token": round(found["computed_total"] / prompt, 6) if prompt else None}


def _quantiles(repetitions: Sequence[Repetition], source: Source) -> list[float]:
    values = sorted(1e3 * seconds for repetition in repetitions for seconds in repetition.ttft_s(source))
    return [round(percentile(values, 100 * at / QUANTILES), 4) for at in range(QUANTILES + 1)] if values else []


def ratios(modes: Mapping[str, Mapping[str, Any]], floor_p50: float | None) -> dict[str, dict[str, Any]]:
    """Each mode over each that comes before it in ``MODES``, by ``RATIOS``; and over the floor."""
    found: dict[str, dict[str, Any]] = {}
    names = sorted(modes, key=rank_of_mode)
    for index, name in enumerate(names):
        for base in names[:index]:
            found[f"{name}/{base}"] = {
                what: _ratio(figure_at(modes[name], path), figure_at(modes[base], path))
                for what, path in RATIOS.items()
            }
        after_tool = figure_at(modes[name], RATIOS["ttft_after_tool_p50"])
        found[f"{name}/floor"] = {"ttft_after_tool_p50": _ratio(after_tool, floor_p50)}
    return found


def figure_at(value: Any, path: Sequence[str]) -> Any:
    """The figure that is found in a mode's machine form by ``path``."""
    for key in path:
        value = value[key]
    return value


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else round(value / base, 4)
