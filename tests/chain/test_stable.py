"""The stability law: what is called stable stays, whatever comes behind it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.chain.tokenizer import Piece

few = settings(max_examples=20)

TEXT = "The cache holds 12 blocks, we're sure.\n\n  It isn't empty; they'll be reused 3 times at least. "

# Tokenizers that do not cut a stretch, or normalise it in ways that reach back.
WHOLE_STRETCHES_ONLY = {"leaking", "llama2-normalized", "llama2-prepend", "metaspace-first", "nfkc"}


@few
@given(data=st.data())
def test_no_continuation_changes_what_is_stable(case, piece_lists, data):
    parts, more = data.draw(piece_lists), data.draw(piece_lists)
    stable = case.tokenizer.stable(parts)
    assert case.tokenizer.encode([*parts, *more])[: len(stable)] == stable


@few
@given(data=st.data())
def test_text_that_grows_by_characters_never_contradicts_itself(case, piece_lists, data):
    parts = data.draw(piece_lists)
    final = case.tokenizer.encode(parts)
    for size, part in enumerate(parts):
        for cut in range(len(part.text)):
            stable = case.tokenizer.stable([*parts[:size], Piece(part.text[:cut], part.trusted)])
            assert final[: len(stable)] == stable


def test_all_but_the_last_words_are_stable(case):
    """Held back: three pre-tokens and the whitespace at the end."""
    parts = [Piece("<|im_start|>user\n", trusted=True), Piece(TEXT * 3, trusted=False)]
    ids, stable = case.tokenizer.encode(parts), case.tokenizer.stable(parts)
    if case.name in WHOLE_STRETCHES_ONLY:
        assert stable == ids[: len(stable)]
        assert len(stable) == (case.name != "llama2-normalized")
    else:
        left = case.tokenizer.decode(ids[len(stable) :])
        assert left.split()[-3:] == left.split() or len(left) < 40


def test_a_stretch_is_closed_by_an_added_token(case):
    closed = [Piece("<s>", trusted=True), Piece("some text ", trusted=False), Piece("<think>", trusted=True)]
    assert case.tokenizer.stable(closed) == case.tokenizer.encode(closed)


def trusted(text):
    return Piece(text, trusted=True)


def untrusted(text):
    return Piece(text, trusted=False)


def test_spaces_that_a_later_token_swallows_are_not_stable(case):
    parts = [untrusted("a b c d e    ")]
    stable = case.tokenizer.stable(parts)
    assert case.tokenizer.encode([*parts, trusted("<|im_end|>")])[: len(stable)] == stable


def test_the_start_of_a_token_is_not_stable(case):
    parts = [trusted("<s>one two three four five<|im_")]
    stable = case.tokenizer.stable(parts)
    assert case.tokenizer.encode([*parts, trusted("end|>")])[: len(stable)] == stable


def test_a_token_that_must_be_a_whole_word_is_not_stable_at_the_end(case):
    """Of the cases, those with such a token: more letters make it text."""
    parts = [trusted("a tool")]
    stable = case.tokenizer.stable(parts)
    for more in ("s", "\u0301"):
        assert case.tokenizer.encode([*parts, trusted(more)])[: len(stable)] == stable


def test_text_in_decomposed_form_is_stable_too(case):
    parts = [untrusted("e\u0301 " * 20)]
    # Which characters are trusted is known before normalisation only, and here a base token must be told apart.
    nothing = {*WHOLE_STRETCHES_ONLY, "flags-gpt2"}
    assert bool(case.tokenizer.stable(parts)) == (case.name not in nothing)


def test_an_unknown_pre_tokenizer_claims_nothing(make_tokenizer):
    """A pattern that looks ahead without bound: digits in threes, counted from the right."""
    pattern = {"Regex": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))|\P{N}+"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    tokenizer = make_tokenizer("bytes", pre_tokenizer=split)
    assert tokenizer.stable([untrusted("1234567 and more")]) == []
    assert tokenizer.stable([untrusted("1234567"), trusted("<think>")])
