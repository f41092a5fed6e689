"""Token ids out of a seed: text of an exact length that needs neither a tokenizer nor trained weights."""

from array import array
from random import Random

__all__ = ("random_ids",)

# Below the vocabulary of every model in use, above the ids that most of them give a meaning of their own.
_FIRST_ID = 256
_ID_BITS = 0x7FF


def random_ids(seed: str, count: int) -> tuple[int, ...]:
    """``count`` ids from 256 to 2303, the same for the same seed."""
    drawn = array("H", Random(seed).randbytes(2 * count))  # noqa: S311 - repeatable, not secret
    return tuple(_FIRST_ID + (number & _ID_BITS) for number in drawn)
