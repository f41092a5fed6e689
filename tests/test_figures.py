"""The tables of the documentation are those that benchmarks/figures.py computes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import SetupError
from page_tables import TABLES, Call, Row, Table, find_markers, read_table, with_table
from project_check.documents import pages

ROOT = Path(__file__).parent.parent
CHEAP = [table for table in TABLES if any(row.cheap for row in table.rows)]


def shown(table: Table) -> list[list[str]]:
    return read_table((ROOT / table.page).read_text(), table.name)


def test_every_marker_has_its_table_and_every_table_its_marker() -> None:
    marked = [(str(page.relative_to(ROOT)), name) for page in pages(ROOT) for name in find_markers(page.read_text())]
    assert sorted(marked) == sorted((table.page, table.name) for table in TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_page_has_the_labels_of_what_is_computed(table: Table) -> None:
    assert list(table.misnamed(shown(table))) == []


@pytest.mark.parametrize("table", CHEAP, ids=lambda table: table.name)
def test_a_page_has_the_figures_that_the_simulator_gives(table: Table) -> None:
    found = {work: work.compute(None) for row in table.rows if row.cheap for work in row.works}
    assert list(table.stale(shown(table), found)) == [], "make figures writes them; correct the sentences around, too"


def counted(number: int) -> Mapping[str, Any]:
    return {"number": number}


ONE = Table(
    name="one",
    page="docs/one.md",
    header=("what", "", "number"),
    rows=(Row(("a", ""), (Call(counted, (1,)),)), Row(("", "`b`"), (Call(counted, (2000,)),))),
    cells=lambda found: [f"{found[0]['number']:,}"],
)
PAGE = """text

<!-- figures: one -->
| what | | number |
|---|---|---|
| a | | 1 |
| | `b` | 2,000 |

more text
"""
FOUND = {work: work.compute(None) for work in ONE.works}


def test_what_is_written_is_read_and_the_rest_of_the_page_is_left() -> None:
    lines = [list(ONE.header), *(ONE.fill(row, FOUND) for row in ONE.rows)]
    assert read_table(PAGE, "one") == lines
    assert with_table(PAGE, "one", lines) == PAGE
    assert with_table(PAGE.replace("2,000", "3"), "one", lines) == PAGE


def test_a_wrong_figure_is_named_with_its_place() -> None:
    (problem,) = ONE.stale(read_table(PAGE.replace("2,000", "2,001"), "one"), FOUND)
    assert problem == "docs/one.md: one, row 2 (`b`), 'number': the page has '2,001', now it is '2,000'"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [("number", "count", "header"), ("| a |", "| b |", "row 1"), ("| | `b` | 2,000 |\n", "", "1 rows")],
)
def test_other_labels_are_seen(old: str, new: str, what: str) -> None:
    assert what in "\n".join(ONE.misnamed(read_table(PAGE.replace(old, new), "one")))


@pytest.mark.parametrize("text", ["", PAGE * 2, "<!-- figures: one -->\n\n| what |\n|---|\n| a |\n"])
def test_a_marker_stands_once_and_right_before_its_table(text: str) -> None:
    with pytest.raises(SetupError, match="marker"):
        read_table(text, "one")
