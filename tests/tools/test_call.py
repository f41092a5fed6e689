import json

import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from agentkv.tools import Outcome, ToolCall


def test_arguments_are_compact_and_keep_the_order_of_the_model() -> None:
    call = ToolCall("call_0001", "find", '{ "b": 1,\n "a": [1.0, "\\u00e5", null] }')
    assert call.arguments == '{"b":1,"a":[1.0,"å",null]}'


@pytest.mark.parametrize(
    "text", ["", "{", "{'a': 1}", '{"a": NaN}', '{"a": 1} trailing', "[" * 100_000, "1" * 5000, '{"a": 1e999}']
)
def test_text_that_is_not_json_is_kept(text: str) -> None:
    assert ToolCall("call_0001", "find", text).arguments == text


def test_lone_surrogates_cannot_get_in() -> None:
    assert ToolCall("c", "f", '{"a":"\\ud800"}').arguments == '{"a":"\ufffd"}'
    assert ToolCall("c", "f", "\ud800").arguments == "\ufffd"
    assert ToolCall("c", "f", '{"a":"\\ud83d\\ude00"}').arguments == '{"a":"\U0001f600"}'


def test_key_is_equal_for_equal_arguments_only() -> None:
    keys = [
        ToolCall(f"c{i}", "f", text).key
        for i, text in enumerate(('{"a":1,"b":2}', '{"b":2, "a":1}', '{"a":2,"b":1}', "{"))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert ToolCall("c", "g", "{}").key != ToolCall("c", "f", "{}").key


@given(
    st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.floats(allow_nan=False, allow_infinity=False)))
)
def test_canonical_form_is_stable_and_loses_nothing(value: dict[str, object]) -> None:
    call = ToolCall("c", "f", json.dumps(value, indent=2))
    assert json.loads(call.arguments) == value
    assert ToolCall("c", "f", call.arguments) == call


def test_data_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        ToolCall("c", "f", "{}").name = "g"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Outcome("ok", "").text = "x"  # type: ignore[misc]


def test_texts_about_calls_that_never_ran() -> None:
    unknown = Outcome.unknown_tool("serch", ("search", "fetch"))
    assert unknown == Outcome("unknown_tool", "There is no tool 'serch'. Available: search, fetch.")
    assert Outcome.unknown_tool("x", ()).text == "There is no tool 'x'. Available: none."
    assert len(Outcome.unknown_tool("x" * 10_000, ()).text) < 120
    assert Outcome.cancelled() == Outcome("cancelled", "The call was cancelled.")
