"""Where two sequences part."""

from collections.abc import Sequence

__all__ = ("common_prefix",)


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items both begin with: ids, blocks, digests, characters.

    Where one only continues the other it takes one comparison of slices, else some that add up to two.
    """
    if type(one) is not type(other):
        one, other = tuple(one), tuple(other)
    same, shorter = 0, min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    parted = shorter
    while parted - same > 1:
        middle = (same + parted) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            parted = middle
    return same
