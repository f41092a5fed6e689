"""A table of a page: its labels, which are words, and what its figures are computed by."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from page_tables.work import Work

__all__ = ("Row", "Table")

Results = Sequence[Mapping[str, Any]]


@frozen
class Row:
    """The first cells of a row, and what the others are made of. ``cheap``: the tests compute it anew."""

    labels: tuple[str, ...]
    works: tuple[Work, ...]
    cheap: bool = False


@frozen(kw_only=True)
class Table:
    """The table of ``page`` behind the marker ``name``; ``cells`` makes a row's figures of what its works found."""

    name: str
    page: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    cells: Callable[[Results], Sequence[str]]

    @property
    def works(self) -> list[Work]:
        """All that has to be computed for it."""
        return [work for row in self.rows for work in row.works]

    @property
    def recorded(self) -> bool:
        """Whether it needs recordings that are not in the repository."""
        return any(work.recorded for work in self.works)

    def fill(self, row: Row, found: Mapping[Work, Mapping[str, Any]]) -> list[str]:
        """The cells of a row, labels included."""
        return [*row.labels, *self.cells([found[work] for work in row.works])]

    def misnamed(self, shown: Sequence[Sequence[str]]) -> Iterator[str]:
        """Say where header, number of rows or labels are not those of ``shown``, the page's table."""
        header, *rows = map(tuple, shown)
        if header != self.header:
            yield f"{self._place}: the page's header is {header}, here it is {self.header}"
        if len(rows) != len(self.rows):
            yield f"{self._place}: the page has {len(rows)} rows, here there are {len(self.rows)}"
        for number, (row, line) in enumerate(zip(self.rows, rows, strict=False), 1):
            if line[: len(row.labels)] != row.labels or len(line) != len(header):
                yield f"{self._place}, row {number}: the page has {line}, here it is named {row.labels}"

    def stale(self, shown: Sequence[Sequence[str]], found: Mapping[Work, Mapping[str, Any]]) -> Iterator[str]:
        """Say of each cell that can be computed from ``found`` where ``shown`` has another."""
        header, *rows = shown
        for number, (row, line) in enumerate(zip(self.rows, rows, strict=True), 1):
            if any(work not in found for work in row.works):
                continue
            named = " | ".join(filter(None, row.labels))
            for column, old, new in zip(header, line, self.fill(row, found), strict=True):
                if old != new:
                    yield f"{self._place}, row {number} ({named}), {column!r}: the page has {old!r}, now it is {new!r}"

    @property
    def _place(self) -> str:
        return f"{self.page}: {self.name}"
