"""The least JSON value that a schema admits."""

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from agentkv.engines.made_up.pattern import matching
from agentkv.errors import ScriptError

__all__ = ("instance",)

_TEXT = "example"
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_DEPTHS = (2, 4, 8, 16, 32, 64)
_OF_FORMAT = {
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "duration": "PT1S",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "00:00:00Z",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_Schema = Mapping[str, Any] | bool


def instance(schema: _Schema) -> Any:
    """A value for a JSON schema: constants, examples and defaults first, else the smallest; required keys only.

    Raises ``ScriptError`` for a schema that admits nothing, or nothing finite.
    """
    problem = ScriptError("the schema admits nothing finite; give the engine a Script")
    # From shallow to deep, so that a choice that contains itself takes its way out at once.
    for deepest in _DEPTHS:
        try:
            return _Sampler(schema, deepest).sample(schema, 0)
        except ScriptError as error:
            problem = error
    raise problem


class _Sampler:
    def __init__(self, root: _Schema, deepest: int) -> None:
        self._root = root
        self._deepest = deepest

    def sample(self, schema: _Schema, depth: int) -> Any:
        if schema is True:
            return {}
        if schema is False:
            raise ScriptError("a schema that is false admits no value; give the engine a Script")
        if depth > self._deepest:
            raise ScriptError(f"the schema requires more than {self._deepest} levels; give the engine a Script")
        if "$ref" in schema:
            return self.sample({**self._resolve(schema["$ref"]), **_without(schema, "$ref")}, depth + 1)
        for key, given in (("const", None), ("enum", 0), ("examples", 0), ("default", None)):
            if key in schema and schema[key] != []:
                return schema[key] if given is None else schema[key][given]
        return self._combined(schema, depth)

    def _combined(self, schema: Mapping[str, Any], depth: int) -> Any:
        if "allOf" in schema:
            merged = dict(_without(schema, "allOf"))
            for part in schema["allOf"]:
                _merge(merged, self._flat(part))
            return self.sample(merged, depth + 1)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._first_possible(schema[key], _without(schema, key), depth)
        return self._typed(schema, depth)

    def _first_possible(self, options: Sequence[_Schema], common: Mapping[str, Any], depth: int) -> Any:
        problem = ScriptError("a choice of no schema admits no value; give the engine a Script")
        for option in options:
            try:
                merged = dict(common)
                _merge(merged, self._flat(option))
                return self.sample(merged, depth + 1)
            except ScriptError as error:
                problem = error
        raise problem

    def _typed(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = kind[0]
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array" or (kind is None and "items" in schema):
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "boolean":
            return False
        return None if kind == "null" else _string(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        known = schema.get("properties", {})
        required = list(schema.get("required", ()))
        least = schema.get("minProperties", 0)
        spare = [name for name in known if name not in required]
        wanted = {*required, *spare[: max(0, least - len(required))]}
        # In the schema's order, which is the one that a constrained model writes them in.
        names = [name for name in known if name in wanted] + [name for name in required if name not in known]
        other = schema.get("additionalProperties", True)
        made = {name: self.sample(known.get(name, other), depth + 1) for name in names}
        for number in range(least - len(made)):
            made[f"key{number + 1}"] = self.sample(other, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        rest = schema.get("items", True)
        schemas = [first[index] if index < len(first) else rest for index in range(least)]
        return [self.sample(each, depth + 1) for each in schemas]

    def _flat(self, schema: _Schema) -> Mapping[str, Any]:
        if isinstance(schema, bool):
            return {} if schema else {"anyOf": []}
        if "$ref" in schema:
            return {**self._resolve(schema["$ref"]), **_without(schema, "$ref")}
        return schema

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise ScriptError(f"the schema has no {reference!r}; give the engine a Script")
            found = found[name]
        return {} if found is True else {"anyOf": []} if found is False else found


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    step = schema.get("multipleOf", 1)
    bounds = [schema[key] for key in _BOUNDS if key in schema]
    near = [floor(bound / step) * step for bound in bounds]
    tried = [0, *bounds, *near, *(each + step for each in near), *(each - step for each in near), sum(bounds) / 2]
    for value in tried:
        if _admits(schema, value, whole):
            return int(value) if whole else value
    raise ScriptError(f"no number could be made up for {dict(schema)!r}; give the engine a Script")


def _admits(schema: Mapping[str, Any], value: float, whole: bool) -> bool:
    return (
        (not whole or value == int(value))
        and value % schema.get("multipleOf", value or 1) == 0
        and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    )


def _string(schema: Mapping[str, Any]) -> str:
    if "pattern" in schema:
        return matching(schema["pattern"])
    text: str = _OF_FORMAT.get(schema.get("format", ""), _TEXT)
    text += "x" * (schema.get("minLength", 0) - len(text))
    longest: int | None = schema.get("maxLength")
    return text[:longest]


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if key == "properties":
            into[key] = {**into.get(key, {}), **value}
        elif key == "required":
            into[key] = [*into.get(key, []), *value]
        else:
            into[key] = value


def _without(schema: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}
