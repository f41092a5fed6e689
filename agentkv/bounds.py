"""Bounds of what users set: what a value is, and validators of attrs fields that name the field and the remedy."""

from collections.abc import Callable
from typing import Any, TypeGuard

from attrs import Attribute

from agentkv.errors import SetupError

__all__ = ("is_number", "is_whole", "number", "one_of", "share", "truth", "whole")

Validator = Callable[[Any, "Attribute[Any]", Any], None]


def is_whole(value: object, least: int) -> bool:
    """Whether ``value`` is a whole number of at least ``least``; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number, infinite ones included; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(*, least: int) -> Validator:
    """A whole number of at least ``least``."""
    return _validator(lambda value: is_whole(value, least), f"a whole number of at least {least}")


def number(*, above: float, most: float | None = None) -> Validator:
    """A number above ``above`` and, where given, at most ``most``."""
    wanted = f"a number above {above:g}" + (f" and at most {most:g}" if most is not None else "")
    return _validator(
        lambda value: is_number(value) and value > above and (most is None or value <= most),
        wanted,
    )


def share() -> Validator:
    """A number from 0 to 1."""
    return _validator(lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1")


def one_of(*values: object) -> Validator:
    """One of ``values``, of the same type."""
    return _validator(
        lambda value: any(type(value) is type(each) and value == each for each in values),
        f"one of {', '.join(map(repr, values))}",
    )


def truth() -> Validator:
    """True or False."""
    return _validator(lambda value: isinstance(value, bool), "True or False")


def _validator(fits: Callable[[Any], bool], wanted: str) -> Validator:
    def check(instance: Any, attribute: "Attribute[Any]", value: Any) -> None:
        if not fits(value):
            raise SetupError(f"{type(instance).__name__}.{attribute.name}={value!r} must be {wanted}")

    return check
