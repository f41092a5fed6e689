"""How figures look, and how a figure becomes text of a page."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

__all__ = ("CLASS_COLOURS", "axes_of", "colour_of", "drawing", "new_figure", "svg_of")

WIDTH = 10.0
# The colours of Okabe and Ito, which differ for colour-blind readers too.
MODE_COLOURS = {
    "stock-off": "#7f7f7f",
    "stock": "#d55e00",
    "stock+exact": "#cc79a7",
    "stock+cap": "#0072b2",
    "stock+offload": "#e69f00",
    "bidirectional": "#009e73",
    "bidirectional+tier": "#56b4e9",
}
OTHER_COLOURS = ("#5e3c99", "#a6761d", "#b2df8a", "#1b1b1b")
CLASS_COLOURS = {
    "anchor": "#00441b",
    "chain": "#238b45",
    "branch": "#74c476",
    "speculative": "#fdae61",
    "running": "#d55e00",
    "used": "#e8894a",
    "cached": "#9ecae1",
    "free": "#eef2f6",
    "unused": "#eef2f6",
    "away": "#41a0c6",
    "also in the pool": "#c6dbef",
}
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "text.parse_math": False,  # a name with a dollar sign is a name
    "font.family": ["sans-serif"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def colour_of(mode: str, modes: Sequence[str]) -> str:
    """The colour of ``mode``, one of ``modes``; the same in every figure."""
    if mode in MODE_COLOURS:
        return MODE_COLOURS[mode]
    others = [each for each in modes if each not in MODE_COLOURS]
    return OTHER_COLOURS[others.index(mode) % len(OTHER_COLOURS)]


@contextmanager
def drawing() -> Iterator[None]:
    """Figures that are made and written in the body look as they should."""
    import matplotlib as mpl

    with mpl.rc_context(SETTINGS):
        yield


def new_figure(height: float, rows: int = 1) -> Any:
    """A figure of ``rows`` axes below each other, ``height`` inches in all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.subplots(rows, 1, squeeze=False, sharex=rows > 1)
    return figure


def axes_of(figure: Any) -> Sequence[Any]:
    """The axes from top to bottom."""
    return tuple(figure.axes)


def svg_of(figure: Any, name: str) -> str:
    """The figure as an ``svg`` element. ``name`` keeps its inner names apart from those of other figures."""
    import matplotlib as mpl

    text = StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
