"""From the machine form of a result to one page of HTML."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from agentkv.bench.page import figures
from agentkv.bench.page.style import drawing
from agentkv.bench.table import table_rows
from agentkv.counted import counted
from agentkv.errors import SetupError

__all__ = ("page", "require_plotting")

TEMPLATE = Path(__file__).parent / "page.html"


def require_plotting(option: str = "--html") -> None:
    """Raise ``SetupError``, which names ``option``, if the library that draws is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise SetupError(f"{option} draws with matplotlib, which is not installed: pip install 'agentkv[bench]'")


def page(result: Mapping[str, Any]) -> str:
    """The result as one page: no script, nothing from elsewhere, every text escaped.

    ``result`` is what ``run_benchmark`` returns. Raises ``SetupError`` where matplotlib is not installed.
    """
    require_plotting()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = _number
    environment.filters["counted"] = counted
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    with drawing():
        drawings, distributions = _drawings(result), _distributions(result)
    return template.render(
        result=result,
        rows=table_rows(result),
        drawings=drawings,
        distributions=distributions,
        second_tier=any(mode["tier"] for mode in result["modes"].values()),
    )


def _distributions(result: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """A title, what is shown, and the drawing, None where there is nothing of the kind."""
    idle = {"floor": result["floor_ms"], "ideal": result["ideal_ms"]}
    share = "What share of {} had their first token within how many milliseconds of {}"
    return [
        (
            "TTFT after a tool",
            share.format("resumes", "the tool's result"),
            figures.distribution(result["modes"], "after_tool", idle),
        ),
        (
            "TTFT of branches",
            share.format("branches", "the moment that they could be asked for"),
            figures.distribution(result["modes"], "branch", {}),
        ),
        (
            "TTFT behind joins",
            share.format("joins", "the end of the last branch"),
            figures.distribution(result["modes"], "join", {}),
        ),
    ]


def _drawings(result: Mapping[str, Any]) -> dict[str, str | None]:
    """The figures as markup, the texts in it escaped by matplotlib."""
    modes = result["modes"]
    return {
        "frontier": figures.frontier(result["frontier"]),
        "pool_ratios": figures.pool_ratios(modes),
        "occupancy": figures.occupancy(modes),
        "timelines": figures.timelines(modes),
    }


def _number(value: Any) -> str:
    """A figure for a reader: thousands apart, no more digits than mean something; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, float) and abs(value) < 100:
        return f"{value:,.3g}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,.0f}"
