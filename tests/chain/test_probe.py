"""The probe's verdicts on real templates."""

from pathlib import Path

import pytest

from agentkv.chain.dialects import detect
from agentkv.chain.format import ChatFormat
from agentkv.chain.template import ChatTemplate

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"


@pytest.fixture
def format_of(make_tokenizer):
    def build(source):
        template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "<|im_end|>"})
        return ChatFormat(make_tokenizer("bytes"), template, detect(template))

    return build


@pytest.fixture
def report_of(format_of):
    return lambda source: format_of(source).verdict


def load(name):
    return (TEMPLATES / f"{name}.jinja").read_text()


@pytest.mark.parametrize("name", ["smollm2", "qwen2.5"])
def test_a_plain_template_only_grows(report_of, name):
    report = report_of(load(name))
    assert all(verdict.append_only for verdict in report.boundaries.values())
    assert set(report.boundaries) == {"tool result", "user message"}
    assert report.delta.append_only


def test_qwen3_drops_reasoning_at_a_new_user_message_only(report_of):
    report = report_of(load("qwen3"))
    assert report.boundaries["tool result"].append_only
    verdict = report.boundaries["user message"]
    assert not verdict.append_only
    assert verdict.message == 1
    assert "assistant message" in verdict.reason
    assert "A plan." in verdict.held
    assert "A plan." not in verdict.fresh
    assert report.delta.append_only


def test_mistral_moves_tools_and_system_message(report_of):
    source = load("mistral-nemo").replace("eos_token", '"<|im_end|>"')
    report = report_of(source)
    tool, user = report.boundaries["tool result"], report.boundaries["user message"]
    assert not tool.append_only
    assert "[INST]You answer" in tool.held
    assert "[INST]Where" in tool.fresh
    assert not user.append_only
    assert "[AVAIL" in user.held
    assert "[INST]" in user.fresh


@pytest.mark.parametrize("name", ["llama-3.1", "llama-3.2"])
def test_llama_grows(report_of, name):
    report = report_of(load(name).replace("<|eot_id|>", "<|im_end|>"))
    assert all(verdict.append_only for verdict in report.boundaries.values())
    assert report.delta.append_only


def test_a_template_that_counts_its_messages_grows_nowhere(report_of):
    report = report_of("{{ messages | length }}" + load("smollm2"))
    assert not any(verdict.append_only for verdict in report.boundaries.values())
    assert {verdict.message for verdict in report.boundaries.values()} == {0}


def test_a_template_whose_tail_depends_on_more_than_the_skeleton_is_found_out(format_of):
    numbered = load("smollm2").replace("{{'<|im_start|>'", "{{ loop.index if message.role == 'user' }}{{'<|im_start|>'")
    chat = format_of(numbered)
    report = chat.verdict
    assert report.boundaries["tool result"].append_only
    assert chat.drops_history("tool result")
    assert not report.delta.append_only
    assert "differs" in report.delta.reason


def test_a_template_that_refuses_messages_says_so(report_of):
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role!') }}{% endif %}"
    report = report_of(refusing + load("smollm2"))
    assert report.boundaries["user message"].reason == "the chat template rejects the messages: No system role!"
