"""Fields of a workload's shape that hold a number or a range of them, checked."""

import math
from typing import Any

from attrs import field

from agentkv.errors import SetupError

__all__ = ("MOST", "at_least", "length_range")

# Beyond this a number is a slip: no model reads as many tokens, and no machine holds the books of as many agents.
MOST = 10_000_000


def at_least(least: int, **how: Any) -> Any:
    """A field for a number of at least ``least`` and at most ``MOST``; its class raises ``SetupError`` for others.

    ``how`` goes to ``attrs.field``.
    """

    def check(_: object, attribute: Any, value: float) -> None:
        if not least <= value < math.inf:
            raise SetupError(f"{attribute.name}={value} must be at least {least}")
        if value > MOST:
            raise SetupError(f"{attribute.name}={value} must be at most {MOST}")

    return field(validator=check, **how)


def length_range() -> Any:
    """A field for the least and the largest of lengths; its class raises ``SetupError`` for what is none."""

    def check(_: object, attribute: Any, value: tuple[int, int]) -> None:
        if not 1 <= value[0] <= value[1] <= MOST:
            raise SetupError(f"{attribute.name}={value[0]}:{value[1]} must be LO:HI with 1 <= LO <= HI <= {MOST}")

    return field(validator=check)
