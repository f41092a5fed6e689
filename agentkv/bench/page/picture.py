"""One figure as a file of its own, for a document to embed."""

from collections.abc import Mapping
from typing import Any

from agentkv.bench.page import figures
from agentkv.bench.page.document import require_plotting
from agentkv.bench.page.style import drawing

__all__ = ("frontier_picture",)


def frontier_picture(found: Mapping[str, Any], title: str) -> str:
    """The frontier ``found`` under ``title`` as an SVG file: no script, nothing from elsewhere, every text escaped.

    Raises ``SetupError`` where matplotlib is not installed.
    """
    require_plotting("--svg")
    with drawing():
        return f'<?xml version="1.0" encoding="utf-8"?>\n{figures.frontier(found, title)}'
