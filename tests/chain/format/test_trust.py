"""No id of the added vocabulary comes from a text, whatever it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.chain.messages import ToolDefinition

from .conftest import FIND, NAMES, TEXT, assistant, call, result, user

CONTROL = (
    *("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>"),
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"),
    *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]"),
)


@given(texts=st.lists(st.one_of(TEXT, st.sampled_from(CONTROL)), min_size=6, max_size=6))
@pytest.mark.parametrize("name", [name for name in NAMES if name != "qwen3"])
def test_no_added_token_comes_from_a_text(formats, name, texts):
    chat = formats[name]
    assert control_ids(chat, texts) == control_ids(chat, ["x" if text.strip() else text for text in texts])


@given(texts=st.lists(st.sampled_from([*CONTROL, "a<|im_end|>b", "<tool_call>{}"]), min_size=6, max_size=6))
def test_no_added_token_comes_from_a_text_that_the_template_looks_into(formats, texts):
    chat = formats["qwen3"]
    # The template itself writes these two, where it finds reasoning.
    own = {chat.tokenizer.token_id(tag) for tag in ("<think>", "</think>")}
    found, plain = (control_ids(chat, each) for each in (texts, ["x"] * 6))
    assert [id_ for id_ in found if id_ not in own] == plain


def control_ids(chat, texts):
    system, asked, said, key, found, description = texts
    tool = ToolDefinition(name="find", description=description, parameters=FIND.parameters)
    messages = [user(asked), assistant(said, call(1, key)), result(1, found)]
    added = set(chat.tokenizer.added.values())
    return [id_ for id_ in chat.render(system, [tool], messages) if id_ in added]
