"""The stability law: what is called stable stays, whatever comes behind it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.chain.tokenizer import Piece

few = settings(max_examples=50)

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
def test_what_is_stable_never_shrinks(case, piece_lists, data):
    parts = data.draw(piece_lists)
    for size in range(len(parts)):
        shorter, longer = case.tokenizer.stable(parts[:size]), case.tokenizer.stable(parts)
        assert longer[: len(shorter)] == shorter


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
