"""How much of a text a pre-tokenizer has cut for good, whatever text follows."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import tokenizers
from attrs import frozen

from agentkv.chain.added import normalizer_kind

__all__ = ("PreTokens",)

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
_CONTRACTION_GROUP = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD_HEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

# Alternatives of the pre-tokenization patterns in use (GPT-2, cl100k, o200k, Llama 3, Qwen, DeepSeek).
# None of them looks further than a run of whitespace or two pre-tokens past the end of its match; a pattern
# with any other alternative might, so nothing is claimed about it.
_SCANNING = frozenset(
    {
        *_CONTRACTIONS,
        _CONTRACTION_GROUP,
        "'(?i:[sdmt]|ll|ve|re)",
        r" ?\p{L}+",
        _WORD_HEAD + r"\p{L}+",
        _WORD_HEAD + r"[\p{L}\p{M}]+",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        *(_WORD_HEAD + _UPPER + "*" + _LOWER + "+" + tail for tail in ("", _CONTRACTION_GROUP + "?")),
        *(_WORD_HEAD + _UPPER + "+" + _LOWER + "*" + tail for tail in ("", _CONTRACTION_GROUP + "?")),
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        r" ?\p{N}+",
        *(r"\p{N}" + count for count in ("", "+", "{1,2}", "{1,3}")),
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+$",
        r"\s+",
    }
)

# Patterns of one run of characters: more text can lengthen the last piece, and change no other.
_GROWING = frozenset(
    {
        *(r"\p{N}" + count for count in ("", "+", "{1,2}", "{1,3}")),
        *(digit + count for digit in (r"\d", "[0-9]") for count in ("", "+")),
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    }
)

# One more than any of the alternatives needs.
_OPEN = 3


@frozen
class _Stage:
    cutter: Any
    grows: bool


class PreTokens:
    """The pre-tokenizer of a ``tokenizer.json``, read as the stages that cut a text one after another."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        known = normalizer_kind(spec.get("normalizer")) != "other"
        self._stages = list(_stages(spec.get("pre_tokenizer"))) if known else []

    def closed(self, text: str) -> int:
        """Up to which character the pre-tokens of ``text`` are final: no text behind it changes them.

        0 where the pre-tokenizer is none that is known to work from left to right. ``text`` is normalised.
        """
        start, end = 0, len(text.rstrip())
        for stage in self._stages:
            # What follows may cut trailing whitespace anew, and an added token with lstrip swallows all of it.
            starts: list[int] = [at for _, (at, _) in stage.cutter.pre_tokenize_str(text[start:]) if at <= end - start]
            if not starts:
                return start
            if not stage.grows:
                return start + starts[max(len(starts) - _OPEN, 0)]
            start += starts[-1]
        return start


def _stages(spec: Mapping[str, Any] | None) -> Iterator[_Stage]:
    """The stages up to the first that is not known, which ends what can be said."""
    parts = [] if spec is None else spec["pretokenizers"] if spec["type"] == "Sequence" else [spec]
    for part in parts:
        grows = _grows(part)
        if grows is None:
            return
        yield _Stage(_build(part), grows)
        if not grows:
            return


def _grows(spec: Mapping[str, Any]) -> bool | None:
    """Whether more text only lengthens a stage's last piece, changes its last few (False), or who knows."""
    match spec:
        case {"type": "Digits" | "Whitespace" | "WhitespaceSplit"} | {"type": "Metaspace", "split": True}:
            return True
        case {"type": "ByteLevel"}:
            return not spec.get("use_regex", True)
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": str(behavior), "invert": bool(invert)}:
            whole = (behavior, invert) in {("Isolated", False), ("Removed", True)}
            if whole and pattern in _GROWING and not invert:
                return True
            return False if whole and _SCANNING.issuperset(_alternatives(pattern)) else None
    return None


def _alternatives(pattern: str) -> Iterator[str]:
    """The branches of a pattern's outermost alternation."""
    start, depth, in_class, escaped = 0, 0, False, False
    for at, char in enumerate(pattern):
        if escaped or char == "\\":
            escaped = not escaped
        elif in_class or char == "[":
            in_class = char != "]"
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


def _build(spec: Mapping[str, Any]) -> Any:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    return tokenizers.Tokenizer.from_str(
        json.dumps({"added_tokens": [], "pre_tokenizer": spec, "model": model})
    ).pre_tokenizer
