"""Brings a JSON schema into the one form that enters prompts.

Titles and discriminators go, definitions that do not refer to themselves are written out in place,
objects are closed, and keywords are sorted; parameters keep the order in which they were declared, because
that is the order in which a model fills them in.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ("canonical_schema",)

_MAPS = frozenset({"$defs", "properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_ONE = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedProperties"}
)
_DROPPED = frozenset({"title", "discriminator"})
_PREFIX = "#/$defs/"


def canonical_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical form of ``schema`` (as pydantic writes it); the argument is left as it is."""
    definitions: dict[str, Any] = dict(schema.get("$defs", {}))
    recursive = _recursive(definitions)
    body: dict[str, Any] = _walk(
        {key: value for key, value in schema.items() if key != "$defs"}, definitions, recursive
    )
    if kept := {name: _walk(definitions[name], definitions, recursive) for name in sorted(recursive)}:
        body = dict(sorted({**body, "$defs": kept}.items()))
    return body


def _walk(schema: Any, definitions: Mapping[str, Any], recursive: frozenset[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix(_PREFIX)
    if name in definitions and name not in recursive:
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return _walk({**definitions[name], **siblings}, definitions, recursive)
    result = {key: _keyword(key, value, definitions, recursive) for key, value in schema.items() if key not in _DROPPED}
    if "properties" in result:
        result.setdefault("additionalProperties", False)
    return dict(sorted(result.items()))


def _keyword(key: str, value: Any, definitions: Mapping[str, Any], recursive: frozenset[str]) -> Any:
    # everything else (default, enum, const, examples, ...) is data, in which "title" is just a word
    if key in _MAPS:
        return {name: _walk(item, definitions, recursive) for name, item in value.items()}
    if key in _LISTS:
        return [_walk(item, definitions, recursive) for item in value]
    return _walk(value, definitions, recursive) if key in _ONE else value


def _recursive(definitions: Mapping[str, Any]) -> frozenset[str]:
    direct = {name: _references(schema) for name, schema in definitions.items()}
    return frozenset(name for name in direct if name in _reachable(name, direct))


def _reachable(start: str, direct: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(direct[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(direct.get(name, ()))
    return seen


def _references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"].removeprefix(_PREFIX)} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(_references(value) for value in schema.values()))
    if isinstance(schema, list):
        return set[str]().union(*(_references(item) for item in schema))
    return set()
