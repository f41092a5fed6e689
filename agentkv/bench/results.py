"""Repetitions put together: medians with their spread, ratios between modes, the machine form."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from agentkv.bench.measure import Repetition

__all__ = ("RATIOS", "SCHEMA", "merge", "mode_json", "ratios")

SCHEMA = "agentkv.bench/1"
TIMELINE_POINTS = 200
# What a ratio between two modes is made of: its name, and the way to the figure.
RATIOS: dict[str, tuple[str, ...]] = {
    "ttft_p50": ("ttft_ms", "p50"),
    "ttft_p95": ("ttft_ms", "p95"),
    "ttft_after_tool_p50": ("ttft_after_tool_ms", "p50"),
    "ttft_after_tool_p95": ("ttft_after_tool_ms", "p95"),
    "task_p50": ("task_s", "p50"),
    "task_p95": ("task_s", "p95"),
    "makespan": ("makespan_s",),
    "computed": ("computed_total",),
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


def _spread(values: Sequence[Any]) -> list[float] | None:
    return None if any(value is None for value in values) else [min(values), max(values)]


def mode_json(config: Mapping[str, Any], repetitions: Sequence[Repetition]) -> dict[str, Any]:
    """One mode: medians of its repetitions, with the least and the largest value of what ratios are made of.

    ``rounds`` and ``occupancy`` are those of the first repetition.
    """
    each = [_figures(repetition) for repetition in repetitions]
    return {
        "config": dict(config),
        "in_force": dict(repetitions[0].in_force),
        "repetitions": len(each),
        **merge(each),
        "spread": {name: _spread([_at(one, path) for one in each]) for name, path in RATIOS.items()},
        "rounds": repetitions[0].rounds(),
        "occupancy": repetitions[0].timeline(TIMELINE_POINTS),
    }


def _figures(repetition: Repetition) -> dict[str, Any]:
    found = repetition.to_json()
    tokens = found["tokens"]
    return {**found, "computed_total": tokens["computed"] + tokens["prefetched"] + tokens["aborted"]}


def ratios(modes: Mapping[str, Mapping[str, Any]], floor_p50: float | None) -> dict[str, dict[str, Any]]:
    """Each mode over each that stands before it, by ``RATIOS``; and over the floor."""
    found: dict[str, dict[str, Any]] = {}
    names = list(modes)
    for index, name in enumerate(names):
        for base in names[:index]:
            found[f"{name}/{base}"] = {
                what: _ratio(_at(modes[name], path), _at(modes[base], path)) for what, path in RATIOS.items()
            }
        after_tool = _at(modes[name], RATIOS["ttft_after_tool_p50"])
        found[f"{name}/floor"] = {"ttft_after_tool_p50": _ratio(after_tool, floor_p50)}
    return found


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value[key]
    return value


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else round(value / base, 4)
