"""The simulator's tokenizer: trained from text of the repository, as it is committed."""

import json
from itertools import pairwise
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import train_sim_tokenizer
from agentkv.chain.tokenizer import Piece, Tokenizer

MODEL = Path(train_sim_tokenizer.TARGET).parent

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is order 17?"},
    {"role": "assistant", "content": None},
    {"role": "tool", "content": '{"status": "shipped"}'},
]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(MODEL)


@pytest.fixture(scope="module")
def template():
    text = (MODEL / "chat_template.jinja").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=False).from_string(text)


def test_training_again_gives_the_committed_file():
    trained = json.loads(train_sim_tokenizer.train().to_str())
    assert trained == json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))


def test_it_is_small():
    assert (MODEL / "tokenizer.json").stat().st_size < 200_000


@given(st.text())
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode([Piece(text, trusted=False)])) == text


def test_english_takes_few_tokens(tokenizer):
    text = "Where is my order? The customer wants a refund because the delivery did not arrive on Monday."
    assert len(tokenizer.encode([Piece(text, trusted=False)])) < 1.3 * len(text.split())


def test_turns_end_with_the_token_that_the_configuration_names(tokenizer):
    config = json.loads((MODEL / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizer.token_id(config["eos_token"]) == 2
    assert {*tokenizer.added} == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def test_the_template_renders_every_role(template):
    text = template.render(messages=MESSAGES, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhere is order 17?<|im_end|>\n"
        '<|im_start|>assistant\n<|im_end|>\n<|im_start|>tool\n{"status": "shipped"}<|im_end|>\n'
        "<|im_start|>assistant\n"
    )


def test_the_template_only_ever_appends(template):
    texts = [template.render(messages=MESSAGES[:n]) for n in range(len(MESSAGES) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))
