"""Made-up values and texts satisfy what they are made for."""

import re
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from agentkv.engines.made_up.instance import instance
from agentkv.engines.made_up.pattern import matching
from agentkv.errors import ScriptError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Leaf(BaseModel):
    size: Annotated[int, Field(gt=3, multiple_of=5)]
    tags: Annotated[list[Colour], Field(min_length=2)]


class Tree(BaseModel):
    """Contains itself, with a way out."""

    leaf: Leaf
    left: "Tree | None"
    more: "list[Tree]"


class Row(TypedDict):
    when: datetime
    day: date
    who: UUID
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{3}$")]
    short: Annotated[str, Field(max_length=2)]
    long: Annotated[str, Field(min_length=20)]


TYPES: list[Any] = [
    int,
    float,
    str,
    bool,
    None,
    int | str,
    str | None,
    Literal["a", 2],
    Colour,
    Decimal,
    dict[str, int],
    tuple[int, str],
    set[int],
    Leaf,
    Tree,
    Row,
    Annotated[float, Field(gt=0, lt=1)],
    Annotated[float, Field(ge=0.5)],
    Annotated[int, Field(lt=-2)],
    Annotated[int, Field(ge=10, le=10)],
    Annotated[dict[str, int], Field(min_length=2)],
    Annotated[tuple[int, ...], Field(min_length=3)],
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_value_for_the_schema_of_a_type_is_of_that_type(type_: Any) -> None:
    adapter = TypeAdapter(type_)
    adapter.validate_python(instance(adapter.json_schema()), strict=False)


@given(low=st.integers(-50, 50), width=st.integers(0, 50), step=st.integers(1, 9), is_open=st.booleans())
def test_a_whole_number_keeps_its_bounds_or_is_refused(low: int, width: int, step: int, is_open: bool) -> None:
    bounds = {"exclusiveMinimum" if is_open else "minimum": low, "maximum": low + width}
    admitted = [n for n in range(low + is_open, low + width + 1) if n % step == 0]
    schema = {"type": "integer", "multipleOf": step, **bounds}
    if admitted:
        assert instance(schema) in admitted
    else:
        with pytest.raises(ScriptError, match="no number could be made up"):
            instance(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 7}, 7),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "string", "examples": ["Oslo", "Rome"], "default": "x"}, "Oslo"),
        ({"type": "string", "default": "x"}, "x"),
        ({"type": "string"}, "example"),
        ({"type": "string", "format": "email"}, "user@example.com"),
        ({"type": ["integer", "null"]}, 0),
        ({"anyOf": [False, {"type": "null"}]}, None),
        ({"type": "array"}, []),
        (
            {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"]},
            {"b": None},
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
                "required": ["b"],
                "minProperties": 2,
            },
            {"a": None, "b": None},
        ),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}], "type": "object"}, {"a": 1}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 3}}}, 3),
    ],
)
def test_the_value_is_the_expected_one(schema: dict[str, Any], value: Any) -> None:
    assert instance(schema) == value


def test_keys_are_in_the_schemas_order() -> None:
    properties = {"z": {"const": 1}, "a": {"const": 2}}
    assert list(instance({"type": "object", "properties": properties, "required": ["a", "z"]})) == ["z", "a"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (False, "admits no value"),
        ({"$ref": "#/$defs/gone"}, "no '#/\\$defs/gone'"),
        ({"$ref": "#"}, "levels"),
        ({"anyOf": []}, "no schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "levels"),
    ],
)
def test_a_schema_without_a_value_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        instance(schema)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Z]{2}-\d{3}$",
        r"(foo|bar)+\s?[^a0]",
        r"[^\w\s]+",
        r"\D\S\W.",
        r"(?:x{2,5}?)y*z",
        r"[é-ü]",
        r"a[^a]",
        r"^$",
        r"[^b]x",
    ],
)
def test_a_text_for_a_pattern_matches_it(pattern: str) -> None:
    assert re.search(pattern, matching(pattern))


@pytest.mark.parametrize(
    ("pattern", "message"), [("(?=b)a", "no text could be made up"), ("(", "no regular expression")]
)
def test_a_pattern_that_is_too_much_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        matching(pattern)
