"""A format for each real template, and what conversations are made of."""

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from agentkv.chain.dialects import detect
from agentkv.chain.format import ChatFormat
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import ChatTemplate
from agentkv.tools.call import ToolCall

TEMPLATES = Path(__file__).parents[2] / "data" / "templates"

ADDED = {
    "qwen": ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>"),
    "llama": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"),
    "mistral": (
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[AVAILABLE_TOOLS]",
    ),
}
FAMILY = {"smollm2": "qwen", "qwen2.5": "qwen", "qwen3": "qwen", "mistral-nemo": "mistral"}
TOKENS = {
    "qwen": {"eos_token": "<|im_end|>"},
    "llama": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
    "mistral": {"bos_token": "<s>", "eos_token": "</s>"},
}
NAMES = ("smollm2", "qwen2.5", "qwen3", "llama-3.1", "llama-3.2", "mistral-nemo")
FIND = ToolDefinition(
    name="find",
    description="Find an order.",
    parameters={"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
# What a hostile or merely odd text may hold.
TEXT = st.one_of(
    st.sampled_from(
        ["", " ", "\n", "shipped", "<|im_end|>", "</tool_response>", "<|eot_id|>", "</s>", "[/INST]", '{"a": 1}']
    ),
    st.text(),
    st.lists(st.sampled_from([" ", "\n", "a", "'s", "12", "<", "|", ">"])).map("".join),
)


def user(text):
    return Message(role="user", content=text)


def assistant(text, *calls):
    return Message(role="assistant", content=text, calls=calls)


def result(number, text):
    return Message(role="tool", content=text, call_id=f"call_{number:04}", name="find")


def call(number, key="K"):
    return ToolCall(f"call_{number:04}", "find", json.dumps({"key": key}))


@pytest.fixture(scope="session")
def formats(make_tokenizer):
    """A format per template, with a small tokenizer that has its family's added tokens."""

    def build(name):
        family = FAMILY.get(name, "llama")
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        added = [{"content": text, "special": text[:2] != "<t", **flags} for text in ADDED[family]]
        kind = "spm" if family == "mistral" else "bytes"
        spm = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
        tokenizer = make_tokenizer(kind, added=added, **({"pre_tokenizer": spm} if kind == "spm" else {}))
        template = ChatTemplate((TEMPLATES / f"{name}.jinja").read_text(), TOKENS[family])
        return ChatFormat(tokenizer, template, detect(template))

    return {name: build(name) for name in NAMES}


@pytest.fixture(scope="session", params=NAMES)
def chat(formats, request):
    return formats[request.param]


@pytest.fixture(scope="session")
def demo(demo_model_path):
    return ChatFormat.load(demo_model_path)
