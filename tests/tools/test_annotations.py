"""Annotations that are strings until the tool is made, because of the import below."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentkv.errors import ToolDefinitionError
from agentkv.tools import Context, Outcome, tool

if TYPE_CHECKING:
    from decimal import Context as Unimported

Ask = Callable[..., Awaitable[Outcome]]


class Node(BaseModel):
    title: str
    children: list[Node] = []


class Leaf(BaseModel):
    """A leaf."""

    title: str = Field(title="Shown", description="What is on it.")
    size: int = 3


class Options(TypedDict, total=False):
    title: str
    leaf: Leaf


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


async def test_types_defined_inside_a_function(ask: Ask) -> None:
    @dataclasses.dataclass
    class Deps:
        tax: int

    @dataclasses.dataclass
    class Price:
        cents: int

    @tool
    async def total(ctx: Context[Deps], prices: list[Price]) -> int:
        return ctx.deps.tax + sum(price.cents for price in prices)

    assert total.takes_context
    price = {
        "additionalProperties": False,
        "properties": {"cents": {"type": "integer"}},
        "required": ["cents"],
        "type": "object",
    }
    assert total.parameters["properties"] == {"prices": {"items": price, "type": "array"}}
    assert await ask(total, '{"prices": [{"cents": 2}, {"cents": 3}]}', deps=Deps(1)) == Outcome("ok", "6")


async def test_decorator_with_options_sees_local_types_too(ask: Ask) -> None:
    class Local(BaseModel):
        x: int

    @tool(timeout=9)
    def read(local: Local) -> int:
        return local.x

    assert await ask(read, '{"local": {"x": 4}}') == Outcome("ok", "4")


def test_definitions_are_inlined_unless_recursive() -> None:
    @tool
    def plant(leaf: Leaf, root: Node, options: Options, colour: Colour = Colour.RED) -> None: ...

    leaf = {
        "additionalProperties": False,
        "properties": {
            "title": {"description": "What is on it.", "type": "string"},
            "size": {"default": 3, "type": "integer"},
        },
        "required": ["title"],
        "type": "object",
    }
    assert plant.parameters == {
        "$defs": {
            "Node": {
                "additionalProperties": False,
                "properties": {
                    "title": {"type": "string"},
                    "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
                },
                "required": ["title"],
                "type": "object",
            }
        },
        "additionalProperties": False,
        "properties": {
            "leaf": {**leaf, "description": "A leaf."},
            "root": {"$ref": "#/$defs/Node"},
            "options": {
                "additionalProperties": False,
                "properties": {"title": {"type": "string"}, "leaf": {**leaf, "description": "A leaf."}},
                "type": "object",
            },
            "colour": {"default": "red", "enum": ["red", "blue"], "type": "string"},
        },
        "required": ["leaf", "root", "options"],
        "type": "object",
    }


def test_a_description_beside_a_reference_wins() -> None:
    @tool
    def plant(leaf: Annotated[Leaf, Field(description="The one to plant.")], other: Leaf) -> None:
        """Plant.

        Args:
            leaf: Overruled by the annotation.
            other: Overrules the class.
        """

    properties = plant.parameters["properties"]
    assert properties["leaf"]["description"] == "The one to plant."
    assert properties["other"]["description"] == "Overrules the class."


def test_keywords_are_sorted_where_a_definition_meets_what_stands_beside_it() -> None:
    @tool
    def plant(leaf: Leaf | None = None, other: Leaf = Leaf(title="x")) -> None: ...  # noqa: B008 - never written to

    assert list(plant.parameters["properties"]["other"]) == [
        *("additionalProperties", "default", "description", "properties", "required", "type")
    ]


def test_words_of_the_schema_language_are_good_names_for_parameters() -> None:
    @tool
    def odd(
        title: str, schema: dict[str, int], model_config: Literal["title"], _x: int = 0, discriminator: str = ""
    ) -> None: ...

    assert list(odd.parameters["properties"]) == ["title", "schema", "model_config", "_x", "discriminator"]
    assert odd.parameters["properties"]["schema"] == {"additionalProperties": {"type": "integer"}, "type": "object"}


def test_tagged_unions_are_inlined_without_dangling_references() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    @tool
    def pet(animal: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    assert "$ref" not in str(pet.parameters)
    assert "#/$defs" not in str(pet.parameters)
    assert len(pet.parameters["properties"]["animal"]["oneOf"]) == 2


def test_a_name_that_is_not_there_at_run_time_is_named() -> None:
    with pytest.raises(ToolDefinitionError, match=r"parameter 'x' of tool 'f' is annotated with 'Unimported'"):

        @tool
        def f(x: Unimported) -> None: ...


def test_the_return_annotation_need_not_exist_at_run_time() -> None:
    @tool
    def f(x: int) -> Unimported: ...  # type: ignore[empty-body]

    assert list(f.parameters["properties"]) == ["x"]


async def test_a_decorator_in_between_hides_nothing(ask: Ask) -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    async def double(ctx: Context[None], n: int) -> int:
        return 2 * n

    @tool
    @logged
    async def count(n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield str(i)

    assert (double.kind, count.kind) == ("async", "stream")
    assert await ask(double, '{"n": 4}') == Outcome("ok", "8")
    assert await ask(count, '{"n": 4}') == Outcome("ok", "0123")
