"""Fields of a workload's shape that hold a number or a range of them, checked."""

import math
from typing import Any

from attrs import field

from agentkv.errors import SetupError

__all__ = ("at_least", "length_range")


def at_least(least: int) -> Any:
    """A field for a number of at least ``least``; its class raises ``SetupError`` for others."""

    def check(_: object, attribute: Any, value: float) -> None:
        if not least <= value < math.inf:
            raise SetupError(f"{attribute.name}={value} must be at least {least}")

    return field(validator=check)


def length_range() -> Any:
    """A field for the least and the largest of lengths; its class raises ``SetupError`` for what is none."""

    def check(_: object, attribute: Any, value: tuple[int, int]) -> None:
        if not 1 <= value[0] <= value[1]:
            raise SetupError(f"{attribute.name}={value[0]}:{value[1]} must be LO:HI with 1 <= LO <= HI")

    return field(validator=check)
