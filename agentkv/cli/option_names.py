"""Mistakes in numbers, told by the options that brought them."""

import argparse
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from agentkv.errors import SetupError

__all__ = ("about", "check_least", "flag_of", "naming_options")

# A field with its value, or a field that a message is about. What is quoted, or has a slash in it, may be a path.
_FIELD = re.compile(r"(?<![\w/.'\"-])([a-z][a-z0-9_]*)=(?=[^\s/]+(?:\s|$))|^([a-z][a-z0-9_]*)(?=: )")


def flag_of(name: str) -> str:
    """The option whose value is called ``name``."""
    return f"--{name.replace('_', '-')}"


def check_least(options: argparse.Namespace, **least: int) -> None:
    """Raise ``SetupError`` naming the first of these options that is given and below its bound, or no number."""
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and not bound <= value < math.inf:
            raise SetupError(f"{flag_of(name)} {value} must be at least {bound}")


@contextmanager
def about(option: str) -> Iterator[None]:
    """Put ``option`` in front of a ``SetupError`` about what it was given."""
    try:
        yield
    except SetupError as error:
        raise type(error)(f"{option}: {error}") from error


@contextmanager
def naming_options(options: argparse.Namespace, **called: str) -> Iterator[None]:
    """Have a ``SetupError`` say ``--prompt-tokens 1`` where what raised it knows its field, ``prompt_tokens=1``, alone.

    ``called`` has fields that are called otherwise than their options, with the names of these.
    """
    names = {**{name: name for name in vars(options)}, **called}

    def told(found: re.Match[str]) -> str:
        field = found[1] or found[2]
        if field not in names:
            return found[0]
        return f"{flag_of(names[field])}{' ' if found[1] else ''}"

    try:
        yield
    except SetupError as error:
        raise type(error)(_FIELD.sub(told, str(error))) from error
