"""Shortened texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.chain.tokenizer import Piece
from agentkv.chain.truncate import lasting, truncate

KEEPS = ("head", "tail", "head+tail")
LONG = " ".join(f"line {i}" for i in range(400))


def count(tokenizer, text):
    return len(tokenizer.encode([Piece(text, False)]))


@pytest.fixture(scope="session")
def tokenizer(make_tokenizer):
    return make_tokenizer("bytes")


@pytest.mark.parametrize("keep", KEEPS)
def test_a_text_that_fits_is_left_alone(tokenizer, keep):
    assert truncate("short", count(tokenizer, "short"), keep, tokenizer) == "short"


@pytest.mark.parametrize(
    ("keep", "head", "tail"), [("head", True, False), ("tail", False, True), ("head+tail", True, True)]
)
def test_what_is_named_stays(tokenizer, keep, head, tail):
    text = truncate(LONG, 200, keep, tokenizer)
    assert text.startswith("line 0 line 1 ") is head
    assert text.endswith(" line 398 line 399") is tail


@pytest.mark.parametrize("keep", KEEPS)
def test_the_line_says_how_many_tokens_went(tokenizer, keep):
    text = truncate(LONG, 200, keep, tokenizer)
    (said,) = re.findall(r"\[(\d+) tokens cut\]", text)
    kept = [part for part in re.split(r"\n?\[\d+ tokens cut\]\n?", text) if part]
    assert int(said) == count(tokenizer, LONG) - sum(count(tokenizer, part) for part in kept)


@pytest.mark.parametrize("keep", KEEPS)
@given(text=st.text(max_size=200), limit=st.integers(1, 120))
def test_the_result_fits_and_is_always_the_same(tokenizer, keep, text, limit):
    result = truncate(text, limit, keep, tokenizer)
    assert count(tokenizer, result) <= limit
    assert truncate(text, limit, keep, tokenizer) == result


def test_the_kept_head_does_not_depend_on_how_long_the_text_gets(tokenizer):
    long = "abcd efgh\n" * 2_000
    sizes = (900, 1_500, 7_777, 20_000)
    assert len({truncate(long[:size], 100, "head", tokenizer).split("\n[")[0] for size in sizes}) == 1


@pytest.mark.parametrize("keep", KEEPS)
def test_what_lasts_of_a_text_begins_whatever_it_grows_to(tokenizer, keep):
    for size in range(0, len(LONG), 97):
        certain = lasting(LONG[:size], 150, keep, tokenizer)
        assert truncate(LONG, 150, keep, tokenizer).startswith(certain)
        assert truncate(LONG[:size], 150, keep, tokenizer).startswith(certain)
    shares = {"head": 0.8, "head+tail": 0.4, "tail": 0}
    assert count(tokenizer, lasting(LONG, 150, keep, tokenizer)) >= 150 * shares[keep]


def test_of_a_very_long_text_tokens_are_estimated_and_most_of_it_is_not_read(tokenizer):
    read = []

    class Watched:
        @staticmethod
        def encode(pieces):
            read.append(len(pieces[0].text))
            return tokenizer.encode(pieces)

    text = "abcd efgh\n" * 100_000
    cut = truncate(text, 200, "head+tail", Watched())
    (about,) = re.findall(r"\[~(\d+) tokens cut\]", cut)
    assert abs(int(about) / count(tokenizer, text) - 1) < 0.05
    assert sum(read) < len(text) / 2
    assert count(tokenizer, cut) <= 200
    assert cut.startswith(lasting(text[:5_000], 200, "head+tail", tokenizer))


def test_a_long_text_of_few_tokens_is_left_alone(tokenizer):
    class Words:
        @staticmethod
        def encode(pieces):
            return pieces[0].text.split()

    text = ("a" * 999 + " ") * 1_000
    assert truncate(text, 1_000, "head", Words()) == text
