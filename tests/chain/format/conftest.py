"""A format for each real template."""

from pathlib import Path

import pytest

from agentkv.chain.dialects import detect
from agentkv.chain.format import ChatFormat
from agentkv.chain.template import ChatTemplate

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
