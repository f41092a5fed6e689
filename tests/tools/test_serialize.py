import dataclasses
import json
import subprocess
import sys
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

from agentkv.errors import ToolError
from agentkv.tools import dump


class Point(NamedTuple):
    y: int
    x: int


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Word(StrEnum):
    HI = "hi"


@dataclasses.dataclass
class Line:
    zulu: int
    alpha: list[date]


@attrs.frozen
class Order:
    zulu: str
    alpha: "Line | None" = None


class Model(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    zulu: Decimal
    alpha: set[str] = set()
    order: dict[str, set[int]] = Field(default={}, alias="Order")
    when: datetime | None = None

    @field_serializer("when", when_used="json")
    def _year(self, when: datetime | None) -> int | None:
        return when and when.year


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        (True, "true"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        (Decimal("1.10"), '"1.10"'),
        (Colour.RED, "red"),
        (Word.HI, "hi"),
        (Size.BIG, "3"),
        ([Colour.RED, Size.BIG, Word.HI], '["red",3,"hi"]'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), '"2026-01-02T03:00:00Z"'),
        (timedelta(minutes=1), '"PT1M"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (PurePosixPath("a/b"), '"a/b"'),
        (SecretStr("hush"), '"**********"'),
        ({"b": 1, "a": {"d": [], "c": "å"}}, '{"b":1,"a":{"d":[],"c":"å"}}'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        ({1: "x", Colour.RED: "y", date(2026, 1, 2): "z"}, '{"1":"x","red":"y","2026-01-02":"z"}'),
        ((1, [2], deque([3])), "[1,[2],[3]]"),
        (Point(1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        (Line(1, [date(2026, 1, 2)]), '{"zulu":1,"alpha":["2026-01-02"]}'),
        (Order("o", Line(1, [])), '{"zulu":"o","alpha":{"zulu":1,"alpha":[]}}'),
        (
            Model(zulu=Decimal("2.0"), alpha={"b", "a"}, Order={"k": {2, 1}}, when=datetime(2026, 1, 1, tzinfo=UTC)),
            '{"zulu":"2.0","alpha":["a","b"],"Order":{"k":[1,2]},"when":2026}',
        ),
        ([Model(zulu=Decimal(1))], '[{"zulu":"1","alpha":[],"Order":{},"when":null}]'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_form_of_each_type(value: object, text: str) -> None:
    assert dump(value) == text


@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(b"x"), [b"x"], {"a": b"x"}, {b"x": 1}, object(), [lambda: 0], iter([1]), (x for x in "a"), int],
)
def test_a_type_without_json_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(ToolError, match=r"^a \w+ has no JSON form; return str"):
        dump(value)


@pytest.mark.parametrize("number", [float("nan"), -float("inf"), Decimal("sNaN"), Decimal("NaN"), Decimal("Infinity")])
def test_numbers_without_json_form_are_refused(number: object) -> None:
    class Reading(BaseModel):
        value: Any

    for value in (number, [number], {"a": number}, Reading(value=number)):
        with pytest.raises(ToolError, match=r"has no JSON form; return None"):
            dump(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ToolError, match="contains itself"):
        dump(loop)


class Linked(BaseModel):
    next: Any = None


def test_a_model_that_contains_itself_is_refused() -> None:
    loop = Linked()
    loop.next = [loop]
    with pytest.raises(ToolError, match="a Linked has no JSON form"):
        dump(loop)


def test_a_number_that_python_does_not_write_is_refused() -> None:
    for value in (10**5000, {10**5000: 1}, [Linked(next=10**5000)]):
        with pytest.raises(ToolError, match="too many digits"):
            dump(value)


@pytest.mark.parametrize("mapping", [{1: "a", "1": "b"}, {Colour.RED: 1, "red": 2}])
def test_keys_that_fall_together_are_refused(mapping: dict[object, object]) -> None:
    with pytest.raises(ToolError, match="two keys"):
        dump(mapping)


@pytest.mark.parametrize("key", [None, True, 1.5, (1, 2)])
def test_keys_that_json_does_not_know_are_refused(key: object) -> None:
    with pytest.raises(ToolError, match="cannot be a key"):
        dump({key: 1})


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert dump("a\ud800b") == "a\ufffdb"
    assert dump({"\udc00": ["\ud83d\ude00", "\ud800"]}) == '{"\ufffd":["\U0001f600","\ufffd"]}'


def test_sets_are_written_alike_in_every_process() -> None:
    program = "from agentkv.tools import dump; print(dump({'x': set('abcdefgh')}))"
    seeds = [{"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)} for seed in (1, 2, 3)]
    texts = {
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout
        for env in seeds
    }
    assert texts == {b'{"x":["a","b","c","d","e","f","g","h"]}\n'}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_json_values_survive(value: object) -> None:
    text = dump(value)
    assert json.loads(text) == value
    text.encode()


@given(st.text(st.characters(codec="utf-8")))
def test_valid_text_is_left_alone(text: str) -> None:
    assert dump(text) == text
