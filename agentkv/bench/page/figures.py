"""The figures of a result: one function each, from the machine form to a drawing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from agentkv.bench.page.style import CLASS_COLOURS, axes_of, colour_of, new_figure, svg_of

__all__ = ("distribution", "frontier", "occupancy", "pool_ratios", "timelines")

Modes = Mapping[str, Mapping[str, Any]]
WAIT, DECODE, TOOL = "#d55e00", "#0072b2", "#d9dee4"
DRAWN_POINTS = 200
KINDS = {
    "after_tool": ("after a tool", "resumes"),
    "branch": ("of a branch", "branches"),
    "join": ("behind a join", "joins"),
}
DASHES = ("-", (0, (5, 2)))


def distribution(modes: Modes, kind: str, idle: Mapping[str, Mapping[str, Any]]) -> str | None:
    """What share had their first token within how many milliseconds; None where there are none.

    ``kind``: ``"after_tool"``, ``"branch"`` or ``"join"``; ``idle``: what is drawn beside them, percentiles by name.
    """
    drawn = {name: values for name, mode in modes.items() if (values := mode[f"quantiles_{kind}_ms"])}
    if not drawn:
        return None
    figure = new_figure(4.2)
    (axes,) = axes_of(figure)
    for place, (name, values) in enumerate(drawn.items()):
        shares = [100 * index / (len(values) - 1) for index in range(len(values))]
        # A simulated resume can take no time at all, which a logarithmic axis has no place for.
        times = [max(value, 0.1) for value in values]
        # Curves may coincide: every other one is drawn on top, with gaps for what is below to be seen.
        look: dict[str, Any] = {"ls": DASHES[place % 2], "zorder": 2 + place % 2, "lw": 1.8}
        axes.plot(times, shares, label=name, color=colour_of(name, list(modes)), **look)
    for (title, figures), style in zip(idle.items(), ("--", ":"), strict=False):
        if figures["p50"]:
            axes.axvline(figures["p50"], color="#555555", ls=style, lw=1.2, label=f"{title} p50")
    what, of = KINDS[kind]
    axes.set(xscale="log", xlabel=f"TTFT {what}, ms (logarithmic)", ylabel=f"{of}, %", ylim=(0, 100))
    _plain_logarithm(axes.xaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return svg_of(figure, f"distribution-{kind}")


def occupancy(modes: Modes) -> str | None:
    """What is in which tier over time: a row a mode for the pool, one more for host memory; None if nobody tells."""
    drawn = {title: series for title, series in _memories(modes) if len(series["points"]) > 1}
    if not drawn:
        return None
    figure = new_figure(0.9 + 1.5 * len(drawn), len(drawn))
    classes: dict[str, Any] = {}
    for axes, ((name, memory), series) in zip(axes_of(figure), drawn.items(), strict=True):
        points = series["points"][:: -(-len(series["points"]) // DRAWN_POINTS)]
        times = [point[0] for point in points]
        shares = [[100 * point[1 + at] for point in points] for at in range(len(series["classes"]))]
        colours = [CLASS_COLOURS[each] for each in series["classes"]]
        areas = axes.stackplot(times, *shares, colors=colours, lw=0)
        classes.update(zip(series["classes"], areas, strict=True))
        axes.set(ylim=(0, 100), ylabel=f"{memory}, %")
        axes.set_title(name, loc="left", fontweight="bold", fontsize=10)
    _seconds_axis(figure, max(series["points"][-1][0] for series in drawn.values()))
    ever = [each for each in CLASS_COLOURS if each in classes and any(_ever(one, each) for one in drawn.values())]
    shown = {each: classes[each] for each in ever}
    figure.legend(list(shown.values()), list(shown), loc="outside right upper")
    return svg_of(figure, "occupancy")


def _memories(modes: Modes) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Each mode's pool, and below it its host memory, with what the row is called."""
    for name, mode in modes.items():
        yield (name, "pool"), mode["occupancy"]
        yield (f"{name}: second tier", "host"), mode["tier_occupancy"]


def _ever(series: Mapping[str, Any], name: str) -> bool:
    at = series["classes"].index(name) + 1 if name in series["classes"] else 0
    return at > 0 and any(point[at] > 0 for point in series["points"])


def timelines(modes: Modes) -> str | None:
    """What each agent waited for, a row of axes a mode; None where nothing was kept."""
    drawn = {name: _lanes(mode["timeline"]) for name, mode in modes.items() if mode["timeline"]}
    if not drawn:
        return None
    agents = max(map(len, drawn.values()))
    figure = new_figure(0.8 + len(drawn) * (0.6 + 0.07 * agents), len(drawn))
    for axes, (name, tasks) in zip(axes_of(figure), drawn.items(), strict=True):
        _bars(axes, tasks)
        axes.set(ylim=(len(tasks) - 0.5, -0.5), ylabel="agents", yticks=[])
        axes.grid(visible=False, axis="y")
        axes.set_title(name, loc="left", fontweight="bold", fontsize=10)
    _seconds_axis(figure, max(turn[2] for tasks in drawn.values() for turns in tasks for turn in turns))
    _bar_legend(figure)
    return svg_of(figure, "timeline")


def _lanes(timeline: Sequence[Mapping[str, Any]]) -> list[list[Sequence[float]]]:
    """The turns of each agent in as few rows as keep those apart that are under way at the same time."""
    found: list[list[Sequence[float]]] = []
    for task in timeline:
        lanes: list[list[Sequence[float]]] = []
        for turn in sorted(task["turns"]):
            lane = next((lane for lane in lanes if lane[-1][2] <= turn[0]), None)
            if lane is None:
                lanes.append([turn])
            else:
                lane.append(turn)
        found += lanes
    return found


def _bars(axes: Any, tasks: Sequence[Sequence[Sequence[float]]]) -> None:
    """One row of bars a task, all bars of a colour in one path: thousands of elements would make the page heavy."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bars: dict[str, list[tuple[int, float, float]]] = {TOOL: [], WAIT: [], DECODE: []}
    for row, turns in enumerate(tasks):
        bars[WAIT] += [(row, ready, first) for ready, first, _ in turns]
        bars[DECODE] += [(row, first, done) for _, first, done in turns]
        bars[TOOL] += [(row, one[2], other[0]) for one, other in pairwise(turns)]
    for colour, spans in bars.items():
        corners = [
            corner
            for row, start, end in spans
            for corner in (
                (start, row - 0.42),
                (end, row - 0.42),
                (end, row + 0.42),
                (start, row + 0.42),
                (start, row - 0.42),
            )
        ]
        if corners:
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(spans)
            axes.add_patch(PathPatch(Path(corners, codes), facecolor=colour, lw=0))
    axes.autoscale_view()


def _bar_legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    titles = (("waits for a first token", WAIT), ("decodes", DECODE), ("tool or branches run", TOOL))
    figure.legend([Patch(color=colour) for _, colour in titles], [t for t, _ in titles], loc="outside upper right")


def frontier(found: Mapping[str, Any] | None, title: str = "") -> str | None:
    """P95 TTFT after a tool over tasks per minute, a line a mode, its points labelled with the agents.

    Bars through a point are the spread of its repetitions. ``title`` of a mode, where it has one, stands for its name.
    """
    if not found:
        return None
    figure = new_figure(4.8)
    (axes,) = axes_of(figure)
    names = list(found["modes"])
    for name, mode in found["modes"].items():
        points = [each for each in mode["points"] if each["ttft_after_tool_p95_ms"] is not None]
        x, y = [p["tasks_per_minute"] for p in points], [max(p["ttft_after_tool_p95_ms"], 0.1) for p in points]
        colour = colour_of(name, names)
        axes.plot(x, y, marker="o", ms=4, lw=1.6, label=mode.get("title", name), color=colour)
        if any(len(point["spread"]["tasks_per_minute"]["values"]) > 1 for point in points):
            across, along = _reach(points, "tasks_per_minute"), _reach(points, "ttft_after_tool_p95_ms")
            axes.errorbar(x, y, xerr=across, yerr=along, fmt="none", ecolor=colour, elinewidth=0.9, alpha=0.6)
        for point, at, height in zip(points, x, y, strict=True):
            axes.annotate(str(point["agents"]), (at, height), (3, 4), textcoords="offset points", fontsize=7.5)
    axes.axhline(found["bound_ms"], color="#555555", ls="--", lw=1.2, label=f"bound, {found['bound_ms']:g} ms")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set(yscale="log", xlim=(0, None), xlabel="tasks per minute", ylabel="p95 TTFT after a tool, ms (logarithmic)")
    _plain_logarithm(axes.yaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return svg_of(figure, "frontier")


def _reach(points: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    """How far below and above each point's figure that of a repetition lies."""
    spreads = [(point[name], point["spread"][name]) for point in points]
    return [[value - each["min"] for value, each in spreads], [each["max"] - value for value, each in spreads]]


def pool_ratios(modes: Modes) -> str | None:
    """TTFT after a tool over ``kv_pool_ratio``; None unless a mode was run with several."""
    managed = [mode for mode in modes.values() if mode["config"]["leases"] and mode["ttft_after_tool_ms"]["n"]]
    found = ((mode["config"]["kv_pool_ratio"], mode["ttft_after_tool_ms"]) for mode in managed)
    points = sorted(found, key=itemgetter(0))
    if len({ratio for ratio, _ in points}) < 2:
        return None
    figure = new_figure(3.6)
    (axes,) = axes_of(figure)
    for percent, style in (("p50", "-"), ("p95", "--")):
        x, y = [ratio for ratio, _ in points], [values[percent] for _, values in points]
        axes.plot(x, y, style, marker="o", ms=4, color=colour_of("bidirectional", ()), label=percent)
    axes.set(xlabel="kv_pool_ratio: share of the pool that leases may hold", ylabel="TTFT after a tool, ms")
    axes.set_ylim(0, None)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return svg_of(figure, "pool-ratios")


def _seconds_axis(figure: Any, end: float) -> None:
    """One axis of time for all rows, from nothing to the end of the longest."""
    axes_of(figure)[-1].set(xlim=(0, end), xlabel="seconds of the engine's clock, first repetition")


def _plain_logarithm(axis: Any) -> None:
    """Numbers as people write them: 200, not 2 × 10²."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.minorticks_off()
