"""The demo model's tokenizer, which has a vocabulary of real size."""

import pytest
from tokenizers import Tokenizer as Whole

from agentkv.chain.tokenizer import Piece, Tokenizer

pytestmark = pytest.mark.vllm

TURNS = [
    Piece("<|im_start|>user\n", trusted=True),
    Piece("Hi! We're 12 people, naïve 日本 👩‍👩‍👧.\n\n    return x  ", trusted=False),
    Piece("<|im_end|>\n<|im_start|>assistant\n", trusted=True),
    Piece("It isn't there; they'll call 0047 555 1234.\t\n", trusted=False),
    Piece("<|im_end|>\n", trusted=True),
]


@pytest.fixture(scope="module")
def tokenizer(demo_model_path):
    return Tokenizer.load(demo_model_path)


def test_a_conversation_is_encoded_as_its_whole_text(tokenizer, demo_model_path):
    whole = Whole.from_file(str(demo_model_path / "tokenizer.json"))
    text = "".join(piece.text for piece in TURNS)
    assert tokenizer.encode(TURNS) == whole.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(tokenizer.encode(TURNS)) == text


def test_control_tokens_in_untrusted_text_are_text(tokenizer):
    text = "".join(tokenizer.added)
    ids = tokenizer.encode([Piece(text, trusted=False)])
    assert not {*ids}.intersection(tokenizer.added.values())
    assert tokenizer.decode(ids) == text


def test_what_is_stable_stays_while_the_conversation_grows(tokenizer):
    final = tokenizer.encode(TURNS)
    for size, piece in enumerate(TURNS):
        for cut in range(len(piece.text) + 1):
            stable = tokenizer.stable([*TURNS[:size], Piece(piece.text[:cut], piece.trusted)])
            assert final[: len(stable)] == stable
