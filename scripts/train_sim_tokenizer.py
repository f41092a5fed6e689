"""Train the simulator's tokenizer: a small byte-level BPE on text of our own. Writes the same file every time."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = Path(__file__).with_name("sim_corpus.txt")
TARGET = Path(__file__).parents[1] / "agentkv/engines/sim_model/tokenizer.json"

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 3300

ENDINGS = ("", "s", "ed", "ing", "er", "ly", "'s")


def train() -> Tokenizer:
    """Digits stand alone and words keep their leading space, as in the model that the demo runs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_text(), trainer)
    return tokenizer


def _text() -> Iterator[str]:
    words, text = CORPUS.read_text(encoding="utf-8").split("== words\n")[1].split("== text\n")
    for word in words.split():
        # A word counts most as it stands, behind a space; its forms give the tokenizer the usual endings.
        yield f" {word}" * 8 + f" {word.capitalize()}" * 3 + f"{word}_{word} {word}"
        yield "".join(f" {word}{ending}" for ending in ENDINGS)
    for _ in range(4):
        yield text


def main() -> int:
    train().save(str(TARGET), pretty=False)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
