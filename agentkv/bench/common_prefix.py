"""Where two sequences part."""

from collections.abc import Sequence

__all__ = ("common_prefix",)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many items both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
