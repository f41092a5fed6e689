"""A short text that matches a regular expression."""

import importlib
import re
from typing import Any

from agentkv.errors import ScriptError

__all__ = ("matching",)

# The parser behind `re`. It has no public name; the result is checked with `re` itself.
_parser = importlib.import_module("re._parser")

_CANDIDATES = "a0A _-.,:;/+=@#!?'\"()[]{}<>|&%$*~^`\\\t\n\u00e9"


def matching(pattern: str) -> str:
    """The text that takes the first branch and the least repetition everywhere.

    Raises ``ScriptError`` where that is not enough, as with look-arounds.
    """
    try:
        text = _text(_parser.parse(pattern))
        if re.search(pattern, text):
            return text
    except re.error as error:
        raise ScriptError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    raise ScriptError(f"no text could be made up for the pattern {pattern!r}; give the engine a Script")


def _text(parts: Any) -> str:
    return "".join(_part(str(kind), value) for kind, value in parts)


def _part(kind: str, value: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "ANY" | "NOT_LITERAL" | "IN":
            return _char(kind, value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, _, repeated = value
            return _text(repeated) * int(least)
        case "SUBPATTERN":
            return _text(value[-1])
        case "ATOMIC_GROUP":
            return _text(value)
        case "BRANCH":
            return _text(value[1][0])
        case _:
            return ""


def _char(kind: str, value: Any) -> str:
    if kind == "ANY":
        return "a"
    if kind == "NOT_LITERAL":
        return "b" if value == ord("a") else "a"
    members = [(str(item), given) for item, given in value]
    negated = members[0][0] == "NEGATE"
    starts = [chr(given[0] if item == "RANGE" else given) for item, given in members if item in ("RANGE", "LITERAL")]
    candidates: list[str] = [*starts, *_CANDIDATES]
    for char in candidates:
        if any(_is_in(char, item, given) for item, given in members) != negated:
            return char
    return ""


def _is_in(char: str, item: str, given: Any) -> bool:
    if item == "LITERAL":
        return bool(ord(char) == given)
    if item == "RANGE":
        return bool(given[0] <= ord(char) <= given[1])
    if item != "CATEGORY":
        return False
    classes = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
    name = str(given).removeprefix("CATEGORY_")
    inside = re.match(classes[name.removeprefix("NOT_")], char) is not None
    return inside != name.startswith("NOT_")
