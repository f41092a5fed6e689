"""Amounts of memory as people write them."""

import math
import re

from agentkv.errors import SetupError

__all__ = ("parse_bytes", "show_bytes")

_FORM = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(option: str, text: str) -> int:
    """Bytes in ``80GiB`` (1024³), ``80GB`` and ``80G`` (1000³), ``1e9`` or ``123456``.

    Raises ``SetupError`` naming ``option`` for anything else, for what is not positive and for fractions of a byte.
    """
    found = _FORM.fullmatch(text.strip())
    try:
        if found is None or (found[3] and not found[2]):
            raise ValueError
        size = float(found[1]) * float(1024 if found[3] else 1000) ** _POWERS[found[2].lower()]
    except ValueError:
        raise SetupError(f"{option} {text!r}: give bytes, as 80GiB, 80GB, 1e9 or 85899345920") from None
    if not math.isfinite(size) or size < 1:
        raise SetupError(f"{option} {text!r}: give at least one byte")
    return round(size)


def show_bytes(size: float) -> str:
    """In the largest binary unit that is not above it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
