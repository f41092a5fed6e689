"""Texts inside a template's input, and a rendered prompt that knows which of its characters to trust."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import frozen

from agentkv.chain.tokenizer import Piece

__all__ = ("Cut", "Layout", "Leaf", "leaves", "plain", "replace")

Cut = Literal["none", "before", "around"]


@frozen
class Leaf:
    """A text inside a template's input.

    ``cut``: where a generation began (``"before"`` the text) or was all of it (``"around"``), tokens do not
    reach across.
    """

    pieces: tuple[Piece, ...]
    cut: Cut = "none"

    @classmethod
    def untrusted(cls, text: str, cut: Cut = "none") -> "Leaf":
        return cls((Piece(text, False),), cut)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def trust(self) -> bytes:
        """One byte per character: 1 where trusted."""
        return b"".join((b"\x01" if piece.trusted else b"\x00") * len(piece.text) for piece in self.pieces)


@frozen
class Layout:
    """A rendered prompt. ``trust`` has a byte per character; no token reaches across a position of ``cuts``."""

    text: str
    trust: bytes
    cuts: tuple[int, ...] = ()

    def pieces(self, start: int = 0, end: int | None = None) -> list[Piece]:
        """The text of [start, end) as pieces of one kind each."""
        stop = len(self.text) if end is None else end
        found: list[Piece] = []
        while start < stop:
            trusted = self.trust[start]
            change = self.trust.find(b"\x00" if trusted else b"\x01", start, stop)
            change = stop if change < 0 else change
            found.append(Piece(self.text[start:change], bool(trusted)))
            start = change
        return found

    def stretches(self, start: int = 0, end: int | None = None) -> list[list[Piece]]:
        """``pieces`` of [start, end), split at its cuts."""
        stop = len(self.text) if end is None else end
        cuts = sorted({start, stop, *(cut for cut in self.cuts if start < cut < stop)})
        return [self.pieces(left, right) for left, right in itertools.pairwise(cuts)]


def leaves(value: object) -> Iterator[Leaf]:
    """Every leaf of a template's input, keys of mappings included, in order."""
    if isinstance(value, Leaf):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(key)
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)


def replace(value: object, texts: Iterator[str]) -> object:
    """``value`` with each leaf, in the order of ``leaves``, replaced by the next of ``texts``."""
    if isinstance(value, Leaf):
        return next(texts)
    if isinstance(value, Mapping):
        return {replace(key, texts): replace(item, texts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace(item, texts) for item in value]
    return value


def plain(value: object) -> object:
    """``value`` with each leaf replaced by its text."""
    return replace(value, iter([leaf.text for leaf in leaves(value)]))
