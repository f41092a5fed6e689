"""Agents: canonical tools, outputs of every kind, and set-up errors that name what is wrong."""

import dataclasses
from typing import Any, Literal, Protocol

import attrs
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from agentkv.errors import ModelOutputError, SetupError
from agentkv.graph import Agent
from agentkv.tools import Context, tool


@tool
async def beta(x: int) -> int:
    """B."""
    return x


@tool
async def alpha(x: int) -> int:
    """A."""
    return x


class Model(BaseModel):
    city: str
    days: int = 1


@dataclasses.dataclass
class Data:
    city: str
    days: int = 1


class Typed(TypedDict):
    city: str


@attrs.frozen
class Place:
    city: str


@attrs.frozen
class Trip:
    places: list[Place]
    _days: int = attrs.field(default=1)
    notes: list[str] = attrs.field(factory=list)
    best: Place | None = None

    @_days.validator
    def _positive(self, _attribute: object, value: int) -> None:
        if value < 1:
            raise ValueError("days must be positive")


@attrs.frozen
class Endless:
    inner: "Endless | None" = None


def test_tools_are_in_the_order_of_their_names_whatever_order_they_come_in() -> None:
    one = Agent("a", instructions="i", tools=[beta, alpha])
    assert one == Agent("a", instructions="i", tools=[alpha, beta])
    assert [each.name for each in one.tools] == ["alpha", "beta"]
    assert hash(one) == hash(Agent("a", instructions="i", tools=[alpha, beta]))


def test_agents_with_other_instructions_differ() -> None:
    assert Agent("a", instructions="i") != Agent("a", instructions="j")


def test_text_is_its_own_answer() -> None:
    agent = Agent("a", instructions="")
    assert agent.output_schema is None
    assert agent.validate_output("not { json") == "not { json"
    assert agent.answer_problem("") == ""


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Model, '{"city": "Rome"}', Model(city="Rome")),
        (Data, '{"city": "Rome", "days": 3}', Data("Rome", 3)),
        (Typed, '{"city": "Rome"}', {"city": "Rome"}),
        (Literal["yes", "no"], '"no"', "no"),
        (list[int], "[1, 2]", [1, 2]),
        (int | None, "null", None),
        (Place, '{"city": "Rome"}', Place("Rome")),
        (Trip, '{"places": [{"city": "Rome"}]}', Trip([Place("Rome")])),
        (Trip, '{"places": [], "days": 2, "notes": ["n"], "best": {"city": "X"}}', Trip([], 2, ["n"], Place("X"))),
        (dict[str, Place], '{"a": {"city": "Rome"}}', {"a": Place("Rome")}),
    ],
)
def test_an_answer_of_every_kind_of_type_is_read_from_json(output: type, text: str, value: object) -> None:
    agent = Agent("a", instructions="", output=output)
    assert agent.output_schema is not None
    assert agent.validate_output(text) == value
    assert agent.answer_problem(text) == ""


def test_the_schema_of_an_attrs_class_is_written_out_in_place() -> None:
    place = {
        "additionalProperties": False,
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "type": "object",
    }
    schema = Agent("a", instructions="", output=Trip).output_schema
    assert schema is not None
    assert schema["required"] == ["places"]
    assert schema["properties"]["places"] == {"items": place, "type": "array"}
    assert schema["properties"]["days"] == {"default": 1, "type": "integer"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"places": [{}]}', "places.0.city: Field required"),
        ('{"places": [], "days": 0}', "days must be positive"),
        ('{"places": [], "more": 1}', "more: Extra inputs"),
        ("Rome", "answer: Invalid JSON"),
    ],
)
def test_a_wrong_answer_is_refused_with_the_field_at_fault(text: str, part: str) -> None:
    agent = Agent("a", instructions="", output=Trip)
    with pytest.raises(ModelOutputError, match=part):
        agent.validate_output(text)
    assert part in agent.answer_problem(text)


def test_many_problems_are_told_in_a_bounded_message() -> None:
    problem = Agent("a", instructions="", output=list[int]).answer_problem(str([None] * 50).replace("None", "null"))
    assert "and 45 more" in problem


@pytest.mark.parametrize("output", [Endless, type("Opaque", (), {}), dict[str, type("Opaque", (), {})]])
def test_a_type_that_json_cannot_give_is_refused_by_name(output: type) -> None:
    with pytest.raises(SetupError, match=r"agent 'a': output=.*(Endless|Opaque).*use str"):
        Agent("a", instructions="", output=output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, r"agent 'a': temperature=-1 must be"),
        ({"temperature": float("nan")}, r"temperature=nan"),
        ({"top_p": 0}, r"top_p=0 must be"),
        ({"max_tokens": 0}, r"max_tokens=0 must be"),
        ({"retries": -1}, r"retries=-1 must be"),
        ({"tools": [print]}, r"not a tool; decorate"),
        ({"tools": [alpha, alpha]}, r"two tools named 'alpha'"),
    ],
)
def test_a_wrong_declaration_names_agent_and_field(options: dict[str, object], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Agent("a", instructions="", **options)


@pytest.mark.parametrize("name", ["", " a"])
def test_an_agent_needs_a_name(name: str) -> None:
    with pytest.raises(SetupError, match="a name must not be empty"):
        Agent(name, instructions="")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": 3}, "agent 3: a name must be text, not int"),
        ({"instructions": None}, "agent 'a': instructions must be text, not NoneType"),
        ({"tools": alpha}, r"agent 'a': tools=.* must be a list of tools, as \[alpha\]"),
        ({"tools": 3}, "tools=3 must be a list of tools"),
        ({"output": {}}, "agent 'a': output={} cannot be read from JSON"),
        ({"output": ""}, "agent 'a': output='' cannot be read from JSON"),
        ({"tools": "alpha"}, "'a' is not a tool; decorate"),
        ({"temperature": "hot"}, "temperature='hot' must be 0 or more"),
        ({"temperature": float("nan")}, "temperature=nan must be 0 or more"),
        ({"top_p": True}, "top_p=True must be above 0"),
        ({"max_tokens": 1.5}, "max_tokens=1.5 must be a whole number"),
        ({"retries": "2"}, "retries='2' must be a whole number"),
    ],
)
def test_a_wrong_type_is_named(fields: dict[str, Any], message: str) -> None:
    given = {"name": "a", "instructions": "", **fields}
    with pytest.raises(SetupError, match=message):
        Agent(given.pop("name"), **given)


class Deps:
    """What a run hands to tools."""


class Special(Deps):
    """More of it."""


class Named(Protocol):
    """Anything with a name."""

    name: str


@tool
async def with_deps(ctx: Context[Deps]) -> str:
    """D."""
    return ""


@tool
async def with_perhaps(ctx: Context[Deps | None]) -> str:
    """P."""
    return ""


@tool
async def with_anything(ctx: Context[Any]) -> str:
    """A."""
    return ""


@tool
async def with_object(ctx: Context[object]) -> str:
    """O."""
    return ""


@tool
async def with_unsaid(ctx: Context) -> str:  # type: ignore[type-arg]
    """U."""
    return ""


@tool
async def with_protocol(ctx: Context[Named]) -> str:
    """N."""
    return ""


def declare(one: Any, deps: Any = None) -> Agent[Any, str]:
    return Agent("a", instructions="", tools=[one], **({} if deps is None else {"deps": deps}))


def test_a_tool_says_what_its_context_must_carry() -> None:
    assert with_deps.deps is Deps
    assert with_unsaid.deps is Any
    assert alpha.deps is Any


@pytest.mark.parametrize(
    ("one", "deps"),
    [
        (with_deps, Deps),
        (with_deps, Special),
        (with_perhaps, None),
        (with_perhaps, Deps),
        (with_anything, None),
        (with_object, None),
        (with_unsaid, None),
        (with_protocol, Deps),
        (alpha, None),
    ],
)
def test_a_tool_fits_an_agent_with_its_deps(one: Any, deps: Any) -> None:
    assert declare(one, deps).tools == (one,)


@pytest.mark.parametrize(
    ("one", "deps", "message"),
    [
        (with_deps, None, "'with_deps' takes Context.Deps., but the agent's deps are None; declare .* deps=Deps"),
        (with_deps, str, "but the agent's deps are str"),
        (with_perhaps, str, "takes Context"),
        (with_protocol, None, "'with_protocol' takes Context.Named."),
    ],
)
def test_a_tool_whose_deps_the_agent_lacks_is_refused(one: Any, deps: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        declare(one, deps)
