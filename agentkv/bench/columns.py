"""Lines of text for a terminal: rows of cells whose columns stand below each other, and names that others gave."""

from collections.abc import Collection, Sequence

__all__ = ("aligned", "printable")


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """A line a row, all rows equally long; the columns numbered in ``left`` begin together, the others end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust if at in left else str.rjust for at in range(len(widths))]
    return ["  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)) for row in rows]


def printable(text: str) -> str:
    """``text`` with a ``?`` for each character that a terminal would take for a command."""
    return "".join(each if each.isprintable() else "?" for each in text)
