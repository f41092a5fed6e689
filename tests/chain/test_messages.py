"""Messages and their OpenAI chat form."""

import pytest

from agentkv.chain.messages import Message, from_openai, to_openai
from agentkv.errors import TemplateError
from agentkv.tools.call import ToolCall

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is 17?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0001", "type": "function", "function": {"name": "find", "arguments": '{"id":17}'}}],
    },
    {"role": "tool", "content": "shipped", "tool_call_id": "call_0001", "name": "find"},
]


def test_openai_messages_survive_a_round_trip():
    assert to_openai(from_openai(CHAT)) == CHAT


def test_a_call_keeps_id_name_and_arguments():
    assert from_openai(CHAT)[2].calls == (ToolCall("call_0001", "find", '{"id":17}'),)


def test_recorded_calls_without_a_function_object_are_read():
    turn = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "f", "arguments": {"a": "é"}}]}
    (message,) = from_openai([turn])
    assert message == Message(role="assistant", content="", calls=(ToolCall("c", "f", '{"a":"é"}'),))


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert from_openai([{"role": "user", "content": parts}])[0].content == "ab"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "critic", "content": ""}, "message 0: role 'critic'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "message 0: content must be text"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}, "message 0: a call has no function name"),
    ],
)
def test_what_is_not_text_is_refused(message, words):
    with pytest.raises(TemplateError, match=words):
        from_openai([message])
