"""Small tokenizers of every kind in use, as the text of a tokenizer.json."""

import json
from functools import cache

import pytest
from attrs import frozen
from hypothesis import strategies as st
from tokenizers import Tokenizer as Whole
from tokenizers import models, pre_tokenizers, trainers

from agentkv.chain.tokenizer import Piece, Tokenizer

CONTROL = ("<|im_start|>", "<|im_end|>", "<s>")
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")

CORPUS = [
    "The engine's cache holds 12345 blocks; we're sure they'll be reused, I'd say.",
    "user assistant system tool\n\nHello, world!  It isn't there.\n    return None\n",
    '{"name": "find_order", "arguments": {"order_id": 17, "note": "don\'t"}}\n',
    "im_start im_end think tool_call <|im_ <think> </tool_call> <|im_end|> <tool_call> <s>",
    "naïve café Übermut 日本語のテキスト 👩‍👩‍👧 e\u0301tude",
]

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY = {**BYTE_LEVEL, "use_regex": False}
NFC = {"type": "NFC"}
LLAMA2 = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def metaspace(scheme, *, cut=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def token(content, *, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False):
    flags = {"single_word": single_word, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized}
    return {"content": content, **flags, "special": special}


CHATML = [*(token(c) for c in CONTROL), *(token(c, special=False) for c in TAGS)]


@cache
def _trained(kind):
    if kind == "bytes":
        whole = Whole(models.BPE())
        whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    elif kind == "spm":
        whole = Whole(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, special_tokens=pieces)
    else:
        whole = Whole(models.Unigram())
        whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        trainer = trainers.UnigramTrainer(
            vocab_size=300, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"
        )
    whole.train_from_iterator(CORPUS, trainer)
    return json.loads(whole.to_str())["model"]


def tokenizer_json(kind, *, added=CHATML, normalizer=None, pre_tokenizer=None, leak=(), **model):
    """``leak``: texts that the base vocabulary holds too, reachable where ``ignore_merges`` is set."""
    base = {**_trained(kind), **model}
    if isinstance(base["vocab"], dict):
        base["vocab"] = dict(base["vocab"])
        for text in leak:
            base["vocab"].setdefault(text, len(base["vocab"]))
    else:
        base["vocab"] = [*base["vocab"], *([text, -1.0] for text in leak)]
    ids = base["vocab"] if isinstance(base["vocab"], dict) else {t: i for i, (t, _) in enumerate(base["vocab"])}
    free = iter(range(len(ids), 10**6))
    tokens = [{"id": ids[t["content"]] if t["content"] in ids else next(free), **t} for t in added]
    decoder = {"type": "ByteLevel", **{k: v for k, v in BYTE_LEVEL.items() if k != "type"}}
    if kind != "bytes":
        decoder = {"type": "Sequence", "decoders": [metaspace("always"), {"type": "ByteFallback"}, {"type": "Fuse"}]}
    spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer}
    return json.dumps(
        {**spec, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder, "model": base}
    )


RUNS = [token(" " * n, special=False, normalized=True) for n in (2, 3, 4)]

FLAGS = [
    token("<|im_start|>", rstrip=True),
    token("<|im_end|>", lstrip=True),
    token("<think>", lstrip=True, rstrip=True, special=False),
    token("tool", single_word=True, special=False, normalized=True),
    token("<s>", normalized=True),
]

SPECS = {
    "gpt2": {"kind": "bytes", "pre_tokenizer": BYTE_LEVEL},
    "gpt2-prefix-space": {"kind": "bytes", "pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}},
    "smollm2": {
        "kind": "bytes",
        "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL),
    },
    "llama3": {"kind": "bytes", "pre_tokenizer": sequence(split(CL100K), BYTES_ONLY), "ignore_merges": True},
    "qwen": {"kind": "bytes", "pre_tokenizer": sequence(split(QWEN), BYTES_ONLY), "normalizer": NFC},
    "o200k": {"kind": "bytes", "pre_tokenizer": sequence(split(O200K), BYTES_ONLY)},
    "deepseek": {
        "kind": "bytes",
        "pre_tokenizer": sequence(
            split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ\u30a0-ヿ]+"), split(DEEPSEEK), BYTES_ONLY
        ),
    },
    "neox-runs": {"kind": "bytes", "pre_tokenizer": BYTE_LEVEL, "normalizer": NFC, "added": [*CHATML, *RUNS]},
    "flags": {"kind": "bytes", "pre_tokenizer": sequence(split(O200K), BYTES_ONLY), "added": FLAGS},
    "flags-gpt2": {"kind": "bytes", "pre_tokenizer": BYTE_LEVEL, "normalizer": NFC, "added": FLAGS},
    "flags-metaspace": {"kind": "spm", "pre_tokenizer": metaspace("always"), "added": FLAGS},
    "leaking": {
        "kind": "bytes",
        "pre_tokenizer": split(r"\s+|[^\s]+"),
        "ignore_merges": True,
        "leak": [*CONTROL, *TAGS],
    },
    "leaking-cl100k": {
        "kind": "bytes",
        "pre_tokenizer": sequence(split(CL100K), BYTES_ONLY),
        "added": [*CHATML, token("think", special=False), token("Ġthe", special=False)],
        "ignore_merges": True,
        "leak": [*CONTROL, *TAGS, "think", "Ġthe"],
    },
    "llama2-prepend": {"kind": "spm", "normalizer": LLAMA2},
    "llama2-normalized": {
        "kind": "spm",
        "normalizer": LLAMA2,
        "added": [*(token(c, normalized=True) for c in CONTROL), *(token(c, special=False) for c in TAGS)],
    },
    "metaspace-first": {"kind": "spm", "pre_tokenizer": metaspace("first", cut=False)},
    "metaspace-first-cut": {"kind": "spm", "pre_tokenizer": metaspace("first")},
    "metaspace-always": {"kind": "spm", "pre_tokenizer": metaspace("always")},
    "metaspace-never": {"kind": "spm", "pre_tokenizer": metaspace("never")},
    "unigram": {"kind": "unigram", "pre_tokenizer": metaspace("first"), "leak": CONTROL},
    "nfkc": {"kind": "bytes", "pre_tokenizer": BYTE_LEVEL, "normalizer": {"type": "NFKC"}},
}


@frozen
class Case:
    name: str
    tokenizer: Tokenizer
    whole: Whole

    def reference(self, text):
        """What Hugging Face's tokenizers make of the whole text."""
        return self.whole.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="session", params=sorted(SPECS))
def case(request):
    """One tokenizer of each kind in use: ours and the library's own."""
    text = tokenizer_json(**SPECS[request.param])
    return Case(request.param, Tokenizer.from_json(text), Whole.from_str(text))


@pytest.fixture(scope="session")
def make_tokenizer():
    """Build ours from a kind ("bytes", "spm", "unigram") and changes to it."""

    def make(kind, **changes):
        usual = {"pre_tokenizer": BYTE_LEVEL} if kind == "bytes" else {}
        return Tokenizer.from_json(tokenizer_json(kind, **{**usual, **changes}))

    return make


ATOMS = [
    *("<|im_start|>", "<|im_end|>", "<s>", "<tool_call>", "</tool_call>", "<think>", "<|im_", "end|>", "tool", "think"),
    *(" ", "  ", "\n", "\n\n", "\t", "\u3000", "'s", "'re", "'", "I", "we", "The", "the", "cache", "HTTP", "1", "2345"),
    *("é", "e\u0301", "\u0301", "\u0338", "中", "文", "カ", "각", "\u11a8", "👩", "\u200d", "ﬁ", "…"),
    *("!", "?", "{", '"', ":", "/", "_", "▁", "Ġ", "'r", "l", "B"),
]


@pytest.fixture(scope="session")
def piece_lists():
    """A hypothesis strategy: lists of pieces of either trust, made of what tokenizers find hard."""
    text = st.lists(st.one_of(st.sampled_from(ATOMS), st.text(max_size=3)), max_size=8).map("".join)
    return st.lists(st.builds(Piece, text, st.booleans()), max_size=6)
