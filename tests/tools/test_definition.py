import inspect
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import attrs
import pytest
from pydantic import Field

from agentkv.errors import ToolDefinitionError
from agentkv.tools import Context, Tool, tool


class Opaque: ...


UNSET = Opaque()


@tool
async def find(ctx: Context[str], order_id: str, limit: int = 3) -> str:
    """Find an order.

    Args:
        ctx: never shown
        order_id: Which one.
    """
    return f"{ctx.deps} {order_id} {limit}"


def test_a_bare_decorator_takes_everything_from_the_function() -> None:
    assert isinstance(find, Tool)
    assert (find.name, find.description, find.kind, find.takes_context) == ("find", "Find an order.", "async", True)
    assert find.parameters == {
        "additionalProperties": False,
        "properties": {
            "order_id": {"description": "Which one.", "type": "string"},
            "limit": {"default": 3, "type": "integer"},
        },
        "required": ["order_id"],
        "type": "object",
    }
    assert (find.timeout, find.retries, find.max_tokens, find.keep) == (None, 1, None, "head")
    assert (find.read_only, find.idempotent, find.sequential) == (False, False, False)


async def test_a_tool_is_called_like_its_function() -> None:
    assert await find(Context("shop"), "17", limit=1) == "shop 17 1"
    assert find.__wrapped__ is find.function
    assert find.__name__ == "find"  # type: ignore[attr-defined]
    assert (find.__doc__ or "").startswith("Find an order.")
    assert list(inspect.signature(find).parameters) == ["ctx", "order_id", "limit"]


def test_every_option_arrives() -> None:
    @tool(
        name="Look-up_1",
        description="Given.",
        timeout=2.5,
        retries=0,
        read_only=True,
        idempotent=True,
        max_tokens=7,
        keep="head+tail",
        sequential=True,
    )
    def look() -> None:
        """Not this."""

    assert (look.name, look.description, look.timeout, look.retries) == ("Look-up_1", "Given.", 2.5, 0)
    assert (look.read_only, look.idempotent, look.max_tokens, look.keep) == (True, True, 7, "head+tail")
    assert look.sequential
    assert look.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert look() is None  # type: ignore[func-returns-value]


def test_kind_follows_the_function() -> None:
    def plain() -> str:
        return ""

    async def coroutine() -> str:
        return ""

    async def stream() -> AsyncIterator[str]:
        yield ""

    def chunks() -> Iterator[str]:
        yield ""

    assert [tool(function).kind for function in (plain, coroutine, stream, chunks)] == [
        "sync",
        "async",
        "stream",
        "sync",
    ]  # type: ignore[arg-type]


def test_tools_are_frozen_and_hashable() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        find.name = "other"  # type: ignore[misc]
    assert len({find, find}) == 1


def test_bound_methods_are_functions() -> None:
    class Shop:
        def find(self, order_id: str) -> str:
            return order_id

    assert list(tool(Shop().find).parameters["properties"]) == ["order_id"]


def test_a_default_without_json_form_is_optional_and_not_shown() -> None:
    @tool
    def f(x: Any = UNSET, y: int = 1) -> None: ...

    assert f.parameters["properties"] == {"x": {}, "y": {"default": 1, "type": "integer"}}
    assert "required" not in f.parameters


def test_a_subclass_or_bare_context_is_a_context() -> None:
    class Mine(Context[int]): ...

    def bare(ctx: Context) -> None: ...  # type: ignore[type-arg]

    def annotated(ctx: Annotated[Context[int], "x"]) -> None: ...

    def mine(ctx: Mine) -> None: ...

    assert all(tool(function).takes_context for function in (bare, annotated, mine))


def _no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]


def _star(*numbers: int) -> None: ...


def _stars(**numbers: int) -> None: ...


def _context_second(x: int, ctx: Context[int]) -> None: ...


def _context_twice(ctx: Context[int], x: Context[int] | None) -> None: ...


def _context_keyword(*, x: Context[int]) -> None: ...


def _unknown_type(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def _opaque(y: int, x: Opaque) -> None: ...


def _callable(x: Callable[[int], int]) -> None: ...


def _alias(x: Annotated[int, Field(alias="y")]) -> None: ...


def _field_default(x: int = Field(3)) -> None: ...


def _infinite(x: float = float("inf")) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_no_annotation, "has no type annotation"),
        (_star, "collects any number of arguments"),
        (_stars, "collects any number of arguments"),
        (_unknown_type, "is annotated with 'Nowhere'"),
        (_opaque, "has a type that JSON cannot be checked against"),
        (_alias, "has an alias; rename the parameter"),
        (_field_default, "has Field(...) as its default; write Annotated"),
        (_context_twice, "holds a Context; make it the first parameter"),
        (_context_keyword, "holds the Context and is keyword-only"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_parameter_that_cannot_be_is_named(function: Callable[..., None], problem: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:
        tool(function)
    name = "numbers" if "star" in function.__name__ else "x"
    assert str(raised.value).startswith(f"parameter {name!r} of tool {function.__name__!r} {problem}")


def test_the_context_must_come_first() -> None:
    with pytest.raises(
        ToolDefinitionError, match=r"'ctx' of tool '_context_second' holds a Context; make it the first"
    ):
        tool(_context_second)


def test_a_method_in_a_class_body_gets_the_remedy() -> None:
    with pytest.raises(ToolDefinitionError, match=r"'self' of tool 'find' .* call tool\(\) on the bound method"):

        class Shop:
            @tool
            def find(self, order_id: str) -> str:
                return order_id


@pytest.mark.parametrize("function", [_callable, _infinite])
def test_parameters_without_json_schema_are_refused(function: Callable[..., None]) -> None:
    with pytest.raises(ToolDefinitionError, match=f"of tool {function.__name__!r} have no JSON schema"):
        tool(function)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": ""}, "name '' must be 1 to 64"),
        ({"name": "a b"}, "name 'a b' must be"),
        ({"name": "å"}, "name 'å' must be"),
        ({"name": "a\n"}, "name 'a"),
        ({"name": "a" * 65}, "must be 1 to 64"),
        ({"timeout": 0}, "timeout=0 must be"),
        ({"timeout": -1.5}, "timeout=-1.5 must be"),
        ({"timeout": float("nan")}, "timeout=nan must be"),
        ({"timeout": float("inf")}, "timeout=inf must be"),
        ({"retries": -1}, "retries=-1 must be"),
        ({"max_tokens": 0}, "max_tokens=0 must be"),
        ({"keep": "middle"}, "keep='middle' must be"),
    ],
    ids=str,
)
def test_options_out_of_range_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:
        tool(**options)(_documented)
    assert problem in str(raised.value)


def _documented() -> None: ...


@pytest.mark.parametrize("thing", [find, int, "f", print], ids=repr)
def test_only_functions_become_tools(thing: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"tool\(\) takes a function"):
        tool(thing)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ToolDefinitionError, match="set name="):
        tool(lambda: None)
    assert tool(name="nothing")(lambda: None).name == "nothing"


def test_the_schema_is_the_same_in_every_process() -> None:
    program = """
import json
from typing import Literal
from agentkv.tools import tool
def f(b: Literal["z", "a"], a: dict[str, int | str | None], c: set[int] | frozenset[str] = frozenset()) -> None: ...
print(json.dumps(tool(f).parameters))
"""
    seeds = [{"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)} for seed in (1, 2)]
    runs = [subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True) for env in seeds]
    first, second = (run.stdout for run in runs)
    assert first == second
    assert list(json.loads(first)) == ["additionalProperties", "properties", "required", "type"]
    assert list(json.loads(first)["properties"]) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 3}, "name 3 must be"),
        ({"timeout": "30"}, "timeout='30' must be a number of seconds"),
        ({"timeout": float("inf")}, "timeout=inf must be"),
        ({"retries": 1.5}, "retries=1.5 must be a whole number"),
        ({"max_tokens": "9"}, "max_tokens='9' must be a whole number"),
        ({"keep": ["head"]}, "keep=.'head'. must be"),
        ({"description": 5}, "description=5 must be text"),
        ({"predict": "x"}, "predict='x' must be a function"),
        ({"read_only": "no"}, "read_only='no' must be True or False"),
        ({"idempotent": None}, "idempotent=None must be True or False"),
        ({"sequential": 1}, "sequential=1 must be True or False"),
    ],
)
def test_an_option_of_the_wrong_type_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):

        @tool(**options)
        async def anything() -> str:
            return ""
