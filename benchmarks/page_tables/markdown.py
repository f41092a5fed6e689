"""Tables in the text of a page, each behind a marker with its name."""

import re
from collections.abc import Sequence

from agentkv.errors import SetupError

__all__ = ("find_markers", "read_table", "with_table")

MARKER = re.compile(r"^<!-- figures: (?P<name>[\w-]+) -->\n", re.MULTILINE)
LINES = re.compile(r"(?:\|.*\n)*")


def find_markers(text: str) -> list[str]:
    """The names of the tables that a page says are computed."""
    return [found["name"] for found in MARKER.finditer(text)]


def read_table(text: str, name: str) -> list[list[str]]:
    """The cells of each line, the header's first. Raises ``SetupError`` where the page has no such table."""
    start, end = _place(text, name)
    header, _, *rows = text[start:end].splitlines()
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in (header, *rows)]


def with_table(text: str, name: str, lines: Sequence[Sequence[str]]) -> str:
    """The page with another table behind the marker; the first line is the header. Raises as ``read_table``."""
    start, end = _place(text, name)
    header, *rows = map(_line, lines)
    rule = "|" + "---|" * len(lines[0]) + "\n"
    return "".join((text[:start], header, rule, *rows, text[end:]))


def _place(text: str, name: str) -> tuple[int, int]:
    starts = [found.end() for found in MARKER.finditer(text) if found["name"] == name]
    if len(starts) != 1:
        raise SetupError(f"table {name!r} has {len(starts)} markers in its page: put one on the line before it")
    lines = LINES.match(text, starts[0])
    if lines is None or lines[0].count("\n") < 3:
        raise SetupError(f"no table stands right behind the marker of {name!r}: put it there, with a row at least")
    return lines.span()


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"
