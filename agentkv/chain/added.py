"""Where the added vocabulary occurs: only in trusted text, where Hugging Face's tokenizers would find it."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

import tokenizers
from attrs import frozen

__all__ = ("AddedVocabulary", "Match", "Trust")

# Rust's White_Space, which decides what a token with lstrip or rstrip swallows; str.isspace differs.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# What untrusted text is masked with: the kind of its border characters is all that a match may depend on.
# Each is the same under every Unicode normal form and letter case, and occurs in no added token.
_SPACE, _WORD, _OTHER = "\u1680", "\u16a0", "\u2042"

_NOTHING = "\0"


@frozen
class Trust:
    """One text and, per character, whether it is the template's own (1) or not (0)."""

    text: str
    flags: bytes

    def is_trusted(self, start: int, stop: int) -> bool:
        return 0 not in self.flags[start : max(stop, start + 1)]

    def trailing(self) -> int:
        """Where the trusted text at the very end begins."""
        return self.flags.rfind(0) + 1


@frozen
class Match:
    """An added token in a text, from ``start`` to ``stop`` in characters, swallowed whitespace included.

    ``late`` says that it was matched in normalised text, after the others had cut it; ``firm``, that it
    depends on no character outside it.
    """

    start: int
    stop: int
    id: int
    late: bool
    firm: bool


class AddedVocabulary:
    """The added tokens of a ``tokenizer.json``.

    Matching is left to the tokenizers library itself, by a tokenizer that knows nothing but the added
    tokens, so that flags (lstrip, rstrip, single_word, normalized) mean what they mean there.
    """

    def __init__(self, spec: Mapping[str, Any], ids: Mapping[str, int]) -> None:
        added = [{**token, "id": i} for i, token in enumerate(spec["added_tokens"], start=1)]
        self._finder = tokenizers.Tokenizer.from_str(json.dumps(_finder(added, spec.get("normalizer"))))
        found = self._finder.get_added_tokens_decoder()
        self._tokens = {
            i: (ids[token.content], token.normalized, not token.normalized and not token.single_word)
            for i, token in found.items()
        }
        contents = [token["content"] for token in added]
        self._heads = {content[:n] for content in contents for n in range(1, len(content))}
        self._longest = max(map(len, contents), default=0)
        changes = normalizer_kind(spec.get("normalizer"))
        late = [token["content"] for token in added if token["normalized"] and changes != "none"]
        self._rewrites_late = bool(late) and changes == "other"
        wary = [*late, *(token["content"] for token in added if token["single_word"])]
        self._margin = max(map(len, wary), default=0)

    def find(self, trust: Trust) -> list[Match]:
        """Every added token that lies wholly in trusted text, first to last."""
        if 1 not in trust.flags:
            return []
        encoding = self._finder.encode(_masked(trust), add_special_tokens=False)
        return [
            Match(start, stop, *self._tokens[i])
            for i, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True)
            if i in self._tokens
        ]

    def settled(self, trust: Trust, matches: list[Match]) -> int:
        """Up to which character no continuation can change what ``find`` found."""
        start, end = trust.trailing(), len(trust.text)
        settled = end
        for size in range(min(self._longest - 1, end - start), 0, -1):
            if trust.text[end - size :] in self._heads:
                settled = end - size
                break
        if start < end:
            firm = max((m.stop for m in matches if m.firm and m.stop <= settled), default=0)
            settled = max(start, firm, settled - self._margin)
        settled = min([settled, *(m.start for m in matches if m.start < settled < m.stop)])
        if self._rewrites_late:
            return max((m.stop for m in matches if not m.late and m.stop <= settled), default=0)
        return settled


def normalizer_kind(spec: Mapping[str, Any] | None) -> str:
    """``"none"``, ``"NFC"`` (changes only the last characters of a text that grows) or ``"other"``."""
    if spec is None:
        return "none"
    if spec["type"] == "Sequence":
        kinds = {normalizer_kind(part) for part in spec["normalizers"]} - {"none"}
        return "other" if len(kinds) > 1 else next(iter(kinds), "none")
    return "NFC" if spec["type"] == "NFC" else "other"


def _finder(added: list[dict[str, Any]], normalizer: object) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {_NOTHING: 0}, "unk_token": _NOTHING},
    }


def _masked(trust: Trust) -> str:
    parts, at = [], 0
    while at < len(trust.text):
        trusted = trust.flags[at]
        stop = trust.flags.find(1 - trusted, at)
        stop = len(trust.text) if stop < 0 else stop
        part = trust.text[at:stop]
        parts.append(part if trusted else _mask(part))
        at = stop
    return "".join(parts)


def _mask(text: str) -> str:
    core = text.lstrip(_WHITE_SPACE)
    before = len(text) - len(core)
    core = core.rstrip(_WHITE_SPACE)
    if not core:
        return _SPACE * len(text)
    inner = _OTHER * (len(core) - 2) + _kind(core[-1]) if len(core) > 1 else ""
    return _SPACE * before + _kind(core[0]) + inner + _SPACE * (len(text) - before - len(core))


def _kind(char: str) -> str:
    word = char.isalnum() or char in "\u200c\u200d" or unicodedata.category(char) in {"Mn", "Mc", "Me", "Pc"}
    return _WORD if word else _OTHER
