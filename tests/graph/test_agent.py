"""Agents: canonical tools, outputs of every kind, and set-up errors that name what is wrong."""

import dataclasses
from typing import Literal

import attrs
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from agentkv.errors import ModelOutputError, SetupError
from agentkv.graph import Agent
from agentkv.tools import tool


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
