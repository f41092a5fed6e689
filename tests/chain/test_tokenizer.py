"""The encoding law: as the whole text, except that untrusted text is only text."""

import re
from itertools import groupby

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.errors import SetupError, SpecialTokenError

few = settings(max_examples=15)


def trusted(text):
    return Piece(text, trusted=True)


def untrusted(text):
    return Piece(text, trusted=False)


def joined(parts):
    return "".join(p.text for p in parts)


def is_comparable(case, parts):
    """Whether every added token that the library finds in the whole text is written out in trusted text.

    Not compared: a token whose pattern the normaliser gave a space (the first files of Llama 2), behind a space;
    and what a normaliser makes of a token's last character and a mark on it, for here the token stays.
    """
    text, trust = joined(parts), [p.trusted for p in parts for _ in p.text]
    contents = {i: content for content, i in case.tokenizer.added.items()}
    encoding = case.whole.encode(text, add_special_tokens=False)
    for i, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        if i in contents:
            swallowed = max(text[start:stop].find(contents[i]), 0)
            length = len(contents[i]) if contents[i] in text[start:stop] else stop - start
            if not all(trust[start + swallowed : start + swallowed + length]):
                return False
    return ">\u0338" not in text and (case.name != "llama2-normalized" or not re.search("[ ▁]<", text))


@few
@given(data=st.data())
def test_ids_are_those_of_the_whole_text(case, piece_lists, data):
    parts = data.draw(piece_lists)
    assume(is_comparable(case, parts))
    assert case.tokenizer.encode(parts) == case.reference(joined(parts))


@few
@given(data=st.data())
def test_trusted_text_alone_is_encoded_as_the_library_does(case, piece_lists, data):
    text = joined(data.draw(piece_lists))
    assume(is_comparable(case, [trusted(text)]))
    assert case.tokenizer.encode([trusted(text)]) == case.reference(text)


@few
@given(data=st.data())
def test_untrusted_text_never_gives_an_added_id(case, piece_lists, data):
    ids = case.tokenizer.encode([untrusted(joined(data.draw(piece_lists)))])
    assert not {*ids}.intersection(case.tokenizer.added.values())


@few
@given(data=st.data())
def test_every_added_id_is_written_out_in_trusted_text(case, piece_lists, data):
    parts = data.draw(piece_lists)
    ids = case.tokenizer.encode(parts)
    # an empty piece parts nothing
    filled = [part for part in parts if part.text]
    runs = ["".join(p.text for p in run) for kind, run in groupby(filled, key=lambda p: p.trusted) if kind]
    if case.whole.normalizer is not None:
        runs = [run + case.whole.normalizer.normalize_str(run) for run in runs]
    for content, i in case.tokenizer.added.items():
        written = content.replace("Ġ", " ")  # how a byte-level vocabulary spells a space
        assert ids.count(i) <= sum(run.count(content) + run.count(written) for run in runs)


@few
@given(data=st.data())
def test_how_text_of_one_trust_is_cut_into_pieces_does_not_matter(case, piece_lists, data):
    parts = data.draw(piece_lists)
    halves = []
    for part in parts:
        cut = data.draw(st.integers(0, len(part.text)))
        halves += [Piece(part.text[:cut], part.trusted), Piece(part.text[cut:], part.trusted)]
    assert case.tokenizer.encode(halves) == case.tokenizer.encode(parts)


def test_a_control_token_typed_by_a_user_is_text(case):
    end = case.tokenizer.token_id("<|im_end|>")
    ids = case.tokenizer.encode([trusted("<|im_start|>"), untrusted("a<|im_end|>b"), trusted(" <|im_end|>")])
    assert ids.count(end) == 1
    assert ids[-1] == end


def test_what_a_user_typed_is_still_what_the_model_reads(make_tokenizer):
    """Splitting inside a forbidden token changes ids, never text."""
    tokenizer = make_tokenizer("bytes", pre_tokenizer=None, ignore_merges=True, leak=["<think>"])
    ids = tokenizer.encode([untrusted("<think>")])
    assert tokenizer.token_id("<think>") not in ids
    assert tokenizer.decode(ids) == "<think>"


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_splitting_inside_a_forbidden_token_adds_no_space(make_tokenizer, scheme):
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    tokenizer = make_tokenizer("unigram", pre_tokenizer=metaspace, leak=["<s>"])
    ids = tokenizer.encode([untrusted("a<s>b")])
    assert tokenizer.token_id("<s>") not in ids
    assert tokenizer.decode(ids) == "a<s>b"


def test_a_base_vocabulary_that_holds_an_added_token_does_hold_it(case):
    """The leaking tokenizers of these tests would break the law if nothing were done."""
    if case.name.startswith("leaking"):
        assert case.tokenizer._base._leaks.issuperset(map(case.tokenizer.token_id, ("<|im_end|>", "<think>")))


@pytest.mark.parametrize(
    "parts",
    [
        [trusted("<|im_"), untrusted("end|>")],
        [untrusted("<|im_"), trusted("end|>")],
        [trusted("<|im_"), untrusted(""), untrusted("e"), trusted("nd|>")],
    ],
)
def test_a_token_across_a_border_of_trust_is_text(case, parts):
    assert case.tokenizer.token_id("<|im_end|>") not in case.tokenizer.encode(parts)


def test_an_empty_untrusted_piece_does_not_part_trusted_text(case):
    ids = case.tokenizer.encode([trusted("<|im_"), untrusted(""), trusted("end|>")])
    assert ids == [case.tokenizer.token_id("<|im_end|>")]


def test_a_mark_on_its_last_character_does_not_undo_a_token_of_the_template(make_tokenizer):
    """U+0338 makes one character of it and a ``>``."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}
    tokenizer = make_tokenizer("bytes", added=[{"content": "<end>", **flags}], normalizer={"type": "NFC"})
    assert tokenizer.encode([trusted("<end>"), untrusted("\u0338")])[0] == tokenizer.token_id("<end>")


def test_whitespace_of_the_template_and_of_a_user_make_no_added_run(make_tokenizer):
    runs = [{"content": "  ", "single_word": False, "lstrip": False, "rstrip": False}]
    added = [{**run, "normalized": True, "special": False} for run in runs]
    tokenizer = make_tokenizer("bytes", added=added)
    run = tokenizer.token_id("  ")
    assert run in tokenizer.encode([trusted("a  ")])
    for parts in ([trusted("a "), untrusted(" b")], [untrusted("a "), trusted(" b")], [untrusted("a  b")]):
        assert run not in tokenizer.encode(parts)


def test_a_token_that_is_a_single_character_is_written_as_bytes(make_tokenizer):
    newline = {"content": "\n", "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer = make_tokenizer("spm", added=[{**newline, "normalized": False, "special": False}], leak=["\n"])
    assert tokenizer.encode([trusted("\n")]) == [tokenizer.token_id("\n")]
    ids = tokenizer.encode([untrusted("a\nb")])
    assert tokenizer.token_id("\n") not in ids
    assert tokenizer.decode(ids) == "a\nb"


def test_a_character_without_another_token_is_refused_by_name(make_tokenizer):
    star = {"content": "*", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = make_tokenizer("bytes", added=[{**star, "special": False}])
    assert tokenizer.encode([trusted("*")]) == [tokenizer.token_id("*")]
    with pytest.raises(SpecialTokenError, match=r"'\*'.*remove"):
        tokenizer.encode([untrusted("2 * 3")])


def test_a_lone_surrogate_becomes_a_replacement_character(make_tokenizer):
    tokenizer = make_tokenizer("bytes")
    assert tokenizer.encode([untrusted("a\ud800b\udfff")]) == tokenizer.encode([untrusted("a\ufffdb\ufffd")])


def test_decode_keeps_special_tokens(make_tokenizer):
    tokenizer = make_tokenizer("bytes")
    text = "<|im_start|>user\nHi, naïve 日本<|im_end|>\n"
    assert tokenizer.decode(tokenizer.encode([trusted(text)])) == text


def test_the_added_vocabulary_is_readable_and_read_only(make_tokenizer):
    tokenizer = make_tokenizer("bytes")
    assert tokenizer.token_id("<tool_call>") == tokenizer.added["<tool_call>"]
    assert tokenizer.token_id("tool_call") is None
    assert max(tokenizer.added.values()) == tokenizer.vocab_size - 1
    with pytest.raises(TypeError):
        tokenizer.added["x"] = 1


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(SetupError, match=rf"{tmp_path}.*tokenizer.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"model": {"type": "Nothing"}, "added_tokens": []}'])
def test_a_broken_tokenizer_is_named(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(SetupError, match=rf"{tmp_path}.*tokenizer.json"):
        Tokenizer.load(tmp_path)
