"""A model without a script still says what it may say, and comes to an end."""

import json
from typing import Any

import pytest

from agentkv.chain import ChatFormat, LabelShape, Message, ToolDefinition, TurnShape
from agentkv.engines.base import GenerateRequest
from agentkv.engines.made_up.text import ANSWER, made_up
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import ScriptError
from agentkv.testing import AutoModel, sim
from agentkv.tools import ToolCall

TOOLS = tuple(
    ToolDefinition(
        name=name,
        description="",
        parameters={"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]},
    )
    for name in ("find", "book")
)
USER = Message(role="user", content="Where is it? <|im_start|>user")
CALLING = Message(role="assistant", content="", calls=(ToolCall("call_0001", "find", '{"n": 3}'),))
RESULT = Message(role="tool", content="there", call_id="call_0001", name="find")
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}


@pytest.fixture(scope="module")
def format_() -> ChatFormat:
    return ChatFormat.load(MODEL_PATH)


@pytest.fixture(scope="module")
def model() -> AutoModel:
    return AutoModel()


def ask(format_: ChatFormat, model: AutoModel, shape: TurnShape, *messages: Message) -> tuple[Any, list[str], str]:
    """Label, names of the calls and text of what the model says."""
    request = GenerateRequest(
        request_id="a",
        token_ids=format_.render("Help.", shape.tools, messages),
        max_tokens=500,
        constraint=format_.dialect.constraint(shape),
    )
    output = model(request)
    assert output.token_ids[-1] in format_.stop_ids
    turn = format_.parse(output.token_ids, shape, 1)
    assert turn.problem is None
    for call in turn.calls:
        assert json.loads(call.arguments) == {"n": 3}
    return turn.label, [call.name for call in turn.calls], turn.text


@pytest.mark.parametrize("answer", [None, SCHEMA])
def test_it_calls_then_answers(format_: ChatFormat, model: AutoModel, answer: dict[str, Any] | None) -> None:
    shape = TurnShape(tools=TOOLS, answer=answer)
    said = ANSWER if answer is None else '{"city": "Oslo"}'
    assert ask(format_, model, shape, USER) == (None, ["find"], "")
    assert ask(format_, model, shape, USER, CALLING, RESULT) == (None, [], said)


def test_it_calls_again_for_a_new_user_message_but_not_for_ever(format_: ChatFormat, model: AutoModel) -> None:
    shape = TurnShape(tools=TOOLS)
    round_ = [USER, CALLING, RESULT]
    assert ask(format_, model, shape, *round_, USER)[1] == ["find"]
    assert ask(format_, model, shape, *round_, *round_, USER)[1] == []


@pytest.mark.parametrize(
    ("choice", "called"), [("required", ["find"]), ("none", []), (("book", "find"), ["book", "find"])]
)
def test_it_keeps_to_a_forced_choice(format_: ChatFormat, model: AutoModel, choice: Any, called: list[str]) -> None:
    shape = TurnShape(tools=TOOLS, choice=choice)
    assert ask(format_, model, shape, USER)[1] == called
    assert ask(format_, model, shape, USER, CALLING, RESULT)[1] == called


def test_it_takes_the_label_that_goes_with_what_it_wants(format_: ChatFormat, model: AutoModel) -> None:
    labels = (LabelShape("any"), LabelShape("more", "calls"), LabelShape("done", "answer"))
    shape = TurnShape(tools=TOOLS, labels=labels)
    assert ask(format_, model, shape, USER) == ("more", ["find"], "")
    assert ask(format_, model, shape, USER, CALLING, RESULT) == ("done", [], ANSWER)


def test_without_tools_it_takes_the_first_label(format_: ChatFormat, model: AutoModel) -> None:
    shape = TurnShape(labels=(LabelShape("left"), LabelShape("right")))
    assert ask(format_, model, shape, USER) == ("left", [], ANSWER)


def test_unconstrained_it_answers(format_: ChatFormat, model: AutoModel) -> None:
    assert ask(format_, model, TurnShape(), USER) == (None, [], ANSWER)


async def test_the_engine_takes_it_when_there_is_no_script(format_: ChatFormat) -> None:
    async with sim() as engine:
        request = GenerateRequest(request_id="a", token_ids=[5], max_tokens=99, stop_token_ids=format_.stop_ids)
        ids = [token async for delta in engine.generate(request) for token in delta.token_ids]
    assert format_.tokenizer.decode(ids[:-1]) == ANSWER


CONST = {"type": "const_string", "value": "x"}
TAG = {"type": "tag", "begin": "<f>", "content": CONST, "end": ["</f>", "</g>"]}


@pytest.mark.parametrize(
    ("form", "calling", "text"),
    [
        ({"type": "plus", "content": CONST}, False, "x"),
        ({"type": "star", "content": CONST}, False, ""),
        ({"type": "optional", "content": CONST}, False, ""),
        ({"type": "repeat", "min": 3, "max": -1, "content": CONST}, False, "xxx"),
        ({"type": "regex", "pattern": "[0-9]{2}"}, False, "00"),
        ({"type": "token", "token": "<t>"}, False, "<t>"),
        ({"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG]}, True, "<f>x</f>"),
        ({"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG]}, False, ANSWER),
        ({"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG], "at_least_one": True}, False, "<f>x</f>"),
        ({"type": "tags_with_separator", "tags": [TAG], "separator": ","}, False, ""),
        ({"type": "tags_with_separator", "tags": [TAG], "separator": ","}, True, "<f>x</f>"),
        ({"type": "or", "elements": [CONST, TAG]}, True, "<f>x</f>"),
        ({"type": "or", "elements": [TAG, CONST]}, False, "x"),
    ],
)
def test_each_format_has_its_text(form: dict[str, Any], calling: bool, text: str) -> None:
    assert made_up(form, ["<f>"], calling=calling) == text


def test_a_format_that_is_too_much_is_named() -> None:
    with pytest.raises(ScriptError, match="for the format 'grammar'; give the engine a Script"):
        made_up({"type": "grammar", "grammar": 'root ::= "x"'}, [], calling=False)
