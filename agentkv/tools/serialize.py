"""Turns what a tool returns into the text that the model reads.

The same value gives the same text in every process: declared key order is kept, sets are sorted, and
nothing depends on a clock or on an object's address.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from agentkv.errors import ToolError

__all__ = ("clean_text", "dump")

_REMEDY = "return str, numbers, containers, a dataclass, an attrs class or a pydantic model"


def dump(value: object) -> str:
    """The text for ``value``: a string as it is, everything else as compact JSON; ``None`` is ``null``.

    Lone surrogates become U+FFFD. Raises ``ToolError`` for bytes, NaN, infinities, circular values, whole numbers
    of more digits than Python writes, and types without a JSON form.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return clean_text(value)
    try:
        return _json(_plain(value))
    except RecursionError:
        raise ToolError(
            f"a {_type_name(value)} that contains itself, or hundreds of levels, has no JSON form; {_REMEDY}"
        ) from None


def clean_text(text: str) -> str:
    """``text`` with each lone surrogate replaced by U+FFFD, so that it can be encoded as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _json(plain: object) -> str:
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ToolError(f"a whole number in it has too many digits ({error}); return it as text") from error


def _plain(value: Any) -> Any:  # noqa: C901, PLR0911 - one case a line reads best
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int():
            return value
        case str():
            return clean_text(value)
        case float() | Decimal():
            return _number(value)
        case PurePath():
            return clean_text(str(value))
        case BaseModel():
            return _model(value)
        case Mapping():
            return _object(value.items())
        case list() | tuple():
            return [_plain(item) for item in value]
        case AbstractSet():
            return _sorted([_plain(item) for item in value])
        case bytes() | bytearray() | memoryview() | Iterator():
            raise _no_form(value)
    return _other(value)


def _other(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object((item.name, getattr(value, item.name)) for item in dataclasses.fields(value))
    if attrs.has(type(value)):
        return _object((item.name, getattr(value, item.name)) for item in attrs.fields(type(value)))
    try:
        return _plain(to_jsonable_python(value))
    except ValueError as error:
        raise _no_form(value) from error


def _number(value: float | Decimal) -> float | str:
    if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
        raise ToolError(f"{value} has no JSON form; return None or a string where a number is missing")
    return str(value) if isinstance(value, Decimal) else value


def _object(items: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in items:
        name = _key(key)
        if name in plain:
            raise ToolError(f"two keys of a mapping have the same JSON form {name!r}; make the keys distinct strings")
        plain[name] = _plain(value)
    return plain


def _key(key: Any) -> str:
    plain = _plain(key)
    if isinstance(plain, int) and not isinstance(plain, bool):
        return _json(plain)
    if not isinstance(plain, str):
        raise ToolError(f"a {_type_name(key)} cannot be a key in JSON; use strings")
    return plain


def _model(value: BaseModel) -> Any:
    """The model's own JSON form, aliases as pydantic's configuration says, under the rules of ``dump``."""
    try:
        dumped = value.model_dump(mode="json")
        return _plain(_settled(dumped, value.model_dump()))
    except ValueError as error:  # also where the model contains itself
        raise _no_form(value) from error


def _settled(dumped: Any, source: Any) -> Any:
    # pydantic writes a set in iteration order, which for strings differs from process to process, and may
    # write a NaN as null or as a string; both show only beside the Python form
    if (isinstance(source, float) and dumped is None) or isinstance(source, Decimal):
        _number(source)
    if isinstance(dumped, list) and isinstance(source, AbstractSet):
        return _sorted(dumped)
    if isinstance(dumped, list) and isinstance(source, list | tuple) and len(dumped) == len(source):
        return [_settled(left, right) for left, right in zip(dumped, source, strict=True)]
    if isinstance(dumped, dict) and isinstance(source, dict) and len(dumped) == len(source):
        pairs = zip(dumped.items(), source.values(), strict=True)
        return {key: _settled(left, right) for (key, left), right in pairs}
    return dumped


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=_json)


def _no_form(value: object) -> ToolError:
    return ToolError(f"a {_type_name(value)} has no JSON form; {_REMEDY}")


def _type_name(value: object) -> str:
    return type(value).__qualname__
