"""One frontier of several results, each of an engine's start of its own."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from agentkv.bench.columns import aligned, printable
from agentkv.bench.frontier import DEFAULT_BOUND_MS, FIGURES, best_line, frontier_of
from agentkv.bench.modes import rank_of_mode
from agentkv.bench.steady_result import SteadyResult
from agentkv.counted import counted
from agentkv.errors import SetupError

__all__ = ("JoinedFrontier", "join_results", "joined_lines")

# The word that permits results that lack something; it is their field.
COMPLETE = "complete"
CAPPED = "stock = stock+cap"
CAPTION = "stock+cap has no line of its own: under a steady load a fixed limit of N agents is stock with N agents"
# What says how often an agent waits for a tool; of seed, the second does where the first is not there yet.
RESUMES = ("resumes_per_agent", "tool_calls")
# What a machine is called by: the first that is told.
MACHINE = ("accelerator", "processor")
TITLES = ("mode", "agents", "tasks/min", "by turns", "TTFT after tool ms p50", "p95", "recomputed", "tasks", "runs")
SPREAD = (
    ("tasks/min", "tasks_per_minute"),
    ("p50", "ttft_after_tool_p50_ms"),
    ("p95", "ttft_after_tool_p95_ms"),
)


@frozen
class JoinedFrontier:
    """``frontier`` as ``frontier_of`` has it, with a ``title`` for each mode that is called otherwise.

    ``title`` says on what it was measured; ``resumes`` is how often an agent waits for a tool, None: not told;
    ``differing`` names the fields in which the results differ, ``incomplete`` the files of which some is missing.
    """

    frontier: Mapping[str, Any]
    title: str
    resumes: float | None
    differing: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()


def join_results(
    results: Sequence[SteadyResult], *, bound_ms: float | None = None, allow: Collection[str] = ()
) -> JoinedFrontier:
    """Put the points of ``results`` (at least one) into one frontier.

    The same mode with the same number of agents again is a repetition. ``bound_ms``: what p95 TTFT after a tool may
    be; None: what the results were measured for, or 200. ``allow`` names fields in which they may differ;
    with ``complete`` in it results may lack what their benchmark had not measured yet when it was ended.
    Raises ``SetupError`` for results that are not comparable, naming both files and the field, and incomplete ones.
    """
    incomplete = _incomplete(results, allow)
    differing = _differing(results, allow)
    found: dict[str, dict[int, dict[str, list[float | None]]]] = {}
    for name, agents, values in _points(results):
        point = found.setdefault(name, {}).setdefault(agents, {figure: [] for figure in FIGURES})
        for figure, each in values.items():
            point[figure] += each
    ranked = {name: found[name] for name in sorted(found, key=rank_of_mode)}
    frontier = frontier_of(_bound(results) if bound_ms is None else bound_ms, ranked)
    if "stock" in frontier["modes"]:
        frontier["modes"]["stock"]["title"] = CAPPED
    resumes = (result.work.get(name) for name in RESUMES for result in results)
    return JoinedFrontier(frontier, _title(results), next(filter(None, resumes), None), differing, incomplete)


def _points(results: Sequence[SteadyResult]) -> Iterator[tuple[str, int, Mapping[str, Sequence[float | None]]]]:
    """Mode, agents and values of each point, a fixed limit as what it is under a steady load."""
    for result in results:
        for point in result.points:
            if point.cap is None:
                yield point.mode, point.agents, point.values
            else:
                yield "stock", min(point.agents, point.cap), point.values


def _incomplete(results: Sequence[SteadyResult], allow: Collection[str]) -> tuple[str, ...]:
    """The files of benchmarks that were ended early, which ``allow`` must permit."""
    found = tuple(result.file for result in results if not result.complete)
    if found and COMPLETE not in allow:
        raise SetupError(
            f"{found[0]!r} is not complete: its benchmark was ended, or goes on, before all repetitions and loads were "
            f"measured; measure it anew, or say --allow {COMPLETE} to draw what it has"
        )
    return found


def _differing(results: Sequence[SteadyResult], allow: Collection[str]) -> tuple[str, ...]:
    """The fields of ``allow`` that differ. What a file does not say differs from nothing."""
    said: dict[str, tuple[Any, str]] = {}
    found: dict[str, None] = {}
    for result in results:
        for name, value in result.same.items():
            first, file = said.setdefault(name, (value, result.file))
            if first == value:
                continue
            if name not in allow:
                field = printable(name)
                raise SetupError(
                    f"{result.file!r} and {file!r} are not comparable: {field} is {value!r} in the one and {first!r} "
                    f"in the other; draw them apart, or say --allow {field} if it makes no difference"
                )
            found[name] = None
    if unknown := next((name for name in allow if name not in {*said, COMPLETE}), None):
        raise SetupError(
            f"--allow {printable(unknown)}: the results have no such field; name it as the message of a difference "
            "does, as engine.pool_blocks"
        )
    return tuple(found)


def _bound(results: Sequence[SteadyResult]) -> float:
    bounds = {result.bound_ms: result.file for result in results if result.bound_ms is not None}
    if len(bounds) > 1:
        told = ", ".join(f"{bound:g} ms in {file!r}" for bound, file in bounds.items())
        raise SetupError(f"frontier.bound_ms differs: {told}; say --bound-ms MS")
    return next(iter(bounds), None) or DEFAULT_BOUND_MS


def _title(results: Sequence[SteadyResult]) -> str:
    first = results[0]
    work, engine, load = first.work, first.engine, first.work["load"]
    parts = [work["kind"] if all(result.complete for result in results) else f"{work['kind']}, incomplete"]
    if engine["pool_blocks"] is not None:
        share = f" ({100 * work['pool']:g} % of the working set)" if work.get("pool") else ""
        parts.append(f"pool of {engine['pool_blocks']:,} blocks{share}")
    parts.append(f"windows of {load['duration'] - load['settle']:g} s")
    parts.append(engine["spec"] if engine["name"] == "sim" else f"{engine['name']} {engine['version']}")
    if engine["name"] != "sim":
        machines = [each.machine[name] for name in MACHINE for each in results if name in each.machine]
        parts += map(str, machines[:1])
    return printable(", ".join(parts))


def joined_lines(joined: JoinedFrontier) -> list[str]:
    """The points as a table, the best of each mode, and these against the best of each mode without ours."""
    frontier = joined.frontier
    rows = [_row(name, point, joined.resumes) for name, mode in frontier["modes"].items() for point in mode["points"]]
    return [
        joined.title,
        *([printable(f"in spite of different {', '.join(joined.differing)}")] if joined.differing else []),
        *(printable(f"not complete: {file}") for file in joined.incomplete),
        *aligned([TITLES, *rows]),
        "",
        *_notes(frontier["modes"]),
        *([CAPTION] if "stock" in frontier["modes"] else []),
        "by turns: turns after a tool per minute, divided by tool calls per agent",
        f"most tasks per minute with p95 TTFT after a tool within {frontier['bound_ms']:g} ms",
        *(f"  {best_line(mode.get('title', name), mode['best'])}" for name, mode in frontier["modes"].items()),
        *_ratios(joined),
    ]


def _row(name: str, point: Mapping[str, Any], resumes: float | None) -> list[str]:
    figures = (
        (point["tasks_per_minute"], "{:,.1f}"),
        (_by_turns(point, resumes), "{:,.1f}"),
        (point["ttft_after_tool_p50_ms"], "{:,.0f}"),
        (point["ttft_after_tool_p95_ms"], "{:,.0f}"),
        (point["recomputed"], "{:,.0f}"),
        (point["tasks"], "{:,.0f}"),
    )
    cells = ["-" if value is None else form.format(value) for value, form in figures]
    return [name, str(point["agents"]), *cells, str(_runs(point))]


def _runs(point: Mapping[str, Any]) -> int:
    return len(point["spread"]["tasks_per_minute"]["values"])


def _by_turns(point: Mapping[str, Any], resumes: float | None) -> float | None:
    """Tasks a minute, counted by their turns: of these a window has more than of ends of tasks."""
    turns, seconds = point["turns_after_tool"], point["window_s"]
    return None if turns is None or not seconds or not resumes else float(60 * turns / seconds / resumes)


def _notes(modes: Mapping[str, Any]) -> Iterator[str]:
    """What a table of medians does not show of a point."""
    for name, mode in modes.items():
        for point in mode["points"]:
            where = f"{name} with {counted(point['agents'], 'agent')}"
            if _runs(point) > 1:
                found = [(title, point["spread"][figure]) for title, figure in SPREAD]
                told = ", ".join(f"{title} {each['min']:,.1f} to {each['max']:,.1f}" for title, each in found if each)
                yield f"{where}, spread of {_runs(point)}: {told}"
            if point["censored"]:
                waiting = counted(round(point["censored"]), "turn")
                yield f"{where}: {waiting} had no first token when the load was taken away"


def _ratios(joined: JoinedFrontier) -> Iterator[str]:
    best = {name: mode["best"] for name, mode in joined.frontier["modes"].items() if mode["best"]}
    for base in (name for name in best if name.startswith("stock")):
        for name in (name for name in best if rank_of_mode(name) > rank_of_mode(base)):
            ratio = best[name]["tasks_per_minute"] / best[base]["tasks_per_minute"]
            one, other = (_by_turns(best[each], joined.resumes) for each in (name, base))
            turns = f", by turns {one / other:.2f}" if one and other else ""
            yield f"{name}/{base}: tasks per minute {ratio:.2f}{turns}"
