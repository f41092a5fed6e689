"""The tokenizer below the added vocabulary: whole stretches of text, and never an added id."""

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

import tokenizers

from agentkv.chain.added import Trust
from agentkv.chain.stable import PreTokens
from agentkv.errors import SpecialTokenError

__all__ = ("BaseTokenizer", "Place")

# Where a stretch stands, which decides what is put before it: at the start of the text, after an added token,
# after one matched in normalised text, or inside a stretch that had to be split.
Place = Literal["first", "after", "late", "inside"]
_PLACES: tuple[Place, ...] = ("first", "after", "late", "inside")


class BaseTokenizer:
    """A ``tokenizer.json`` without its added tokens.

    Its own vocabulary may still hold their text. Where one of their ids comes up in text that is not wholly
    trusted, the text is encoded again, split inside that occurrence.
    """

    def __init__(self, spec: Mapping[str, Any], added: Mapping[str, int]) -> None:
        self._tokenizers: dict[Place, tokenizers.Tokenizer] = {}
        self._pretokens: dict[Place, PreTokens] = {}
        built: dict[str, tuple[tokenizers.Tokenizer, PreTokens]] = {}
        for place in _PLACES:
            # Most tokenizers act alike everywhere, and loading a large vocabulary takes a second.
            placed = _placed(spec, place)
            key = json.dumps([placed.get("normalizer"), placed.get("pre_tokenizer")])
            built[key] = built.get(key) or (_without_added(placed), PreTokens(placed))
            self._tokenizers[place], self._pretokens[place] = built[key]
        self._names = {i: content for content, i in added.items()}
        self._leaks = _reachable(spec["model"]).intersection(self._names)
        self._bytes = self._byte_ids() if spec["model"].get("byte_fallback") else {}

    def encode(self, trust: Trust, start: int, stop: int, place: Place) -> list[int]:
        """The ids of one stretch. Raises ``SpecialTokenError`` where an added id cannot be avoided."""
        ids: list[int] = []
        todo = [(start, stop, place)]
        while todo:
            start, stop, place = todo.pop()
            if start == stop:
                continue
            encoding = self._tokenizers[place].encode(trust.text[start:stop], add_special_tokens=False)
            found = list(self._forbidden(encoding, trust, start))
            if not found:
                ids += encoding.ids
            elif stop - start == 1:
                ids += self._escaped(trust.text[start], found[0][0])
            else:
                cuts = [start, *_cuts(found, start, stop), stop]
                parts = [(a, b, place if a == start else "inside") for a, b in pairwise(cuts)]
                todo += reversed(parts)
        return ids

    def stable(self, trust: Trust, start: int, stop: int, place: Place) -> list[int]:
        """The first ids of the stretch that are the same whatever text follows, its end included."""
        normalizer = self._tokenizers[place].normalizer
        text = trust.text[start:stop]
        plain = text if normalizer is None else normalizer.normalize_str(text)
        if plain != text and self._leaks:
            return []  # whose text is trusted is known for the text as given only
        closed = self._pretokens[place].closed(plain)
        if not closed or not self._leaks:
            return self._upto(plain, closed, place)
        # An added id that comes up later splits the stretch at any point behind ``closed``, so what is before
        # must hold for a text that ends there as well.
        encoding = self._tokenizers[place].encode(plain[:closed], add_special_tokens=False)
        first = next((at for _, at, _ in self._forbidden(encoding, trust, start)), start + closed)
        head = plain[: first - start + 1] if first < start + closed else plain[:closed]
        return self._upto(plain[:closed], self._pretokens[place].closed(head), place)

    def _upto(self, text: str, end: int, place: Place) -> list[int]:
        if not end:
            return []
        encoding = self._tokenizers[place].encode(text, add_special_tokens=False)
        return [i for i, (_, stop) in zip(encoding.ids, encoding.offsets, strict=True) if stop <= end]

    def _forbidden(self, encoding: Any, trust: Trust, start: int) -> Iterator[tuple[int, int, int]]:
        """Id, start and stop of each added id that did not come from trusted text alone."""
        if self._leaks.isdisjoint(encoding.ids):
            return
        for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True):
            if i in self._leaks and not trust.is_trusted(start + a, start + b):
                yield i, start + a, start + b

    def _escaped(self, char: str, found: int) -> list[int]:
        """One character whose own token is an added one, as its bytes where the model has tokens for them."""
        ids = [self._bytes.get(byte) for byte in char.encode()]
        if None in ids:
            raise SpecialTokenError(
                f"{char!r} in untrusted text has no other token than the added {self._names[found]!r} (id {found}); "
                "remove the character from the text"
            )
        return [i for i in ids if i is not None]

    def _byte_ids(self) -> dict[int, int]:
        base = self._tokenizers["first"]
        ids = {byte: base.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
        return {byte: i for byte, i in ids.items() if i is not None and i not in self._names}


def _cuts(found: list[tuple[int, int, int]], start: int, stop: int) -> list[int]:
    """Behind the first character of each occurrence; around one that is a single character."""
    cuts = {at + 1 for _, at, _ in found} | {at for _, at, end in found if end - at <= 1}
    return sorted(cut for cut in cuts if start < cut < stop)


def _reachable(model: Mapping[str, Any]) -> frozenset[int]:
    """Ids that the model may produce. A BPE's vocabulary holds tokens that no merge leads to."""
    vocab = model["vocab"]
    ids = vocab if isinstance(vocab, dict) else {text: i for i, (text, _) in enumerate(vocab)}
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if model["type"] != "BPE" or model.get("ignore_merges") or affixes:
        return frozenset(ids.values())
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    merged = {left + right for left, right in pairs}
    merged.add(model.get("unk_token"))
    return frozenset(i for text, i in ids.items() if len(text) == 1 or text in merged)


def _without_added(spec: Mapping[str, Any]) -> tokenizers.Tokenizer:
    model = {**spec["model"], "dropout": None} if "dropout" in spec["model"] else spec["model"]
    bare: dict[str, Any] = {
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
        "model": model,
    }
    return tokenizers.Tokenizer.from_str(json.dumps({**spec, **bare}))


def _placed(spec: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """``spec`` as it acts on a text that stands at ``place`` of a longer one."""
    if place == "first":
        return dict(spec)
    normalizer = _drop_prepend(spec.get("normalizer")) if place in {"late", "inside"} else spec.get("normalizer")
    return {**spec, "normalizer": normalizer, "pre_tokenizer": _no_prefix(spec.get("pre_tokenizer"), place)}


def _drop_prepend(normalizer: Any) -> Any:
    if normalizer is None or normalizer["type"] == "Prepend":
        return None
    if normalizer["type"] == "Sequence":
        parts = [_drop_prepend(part) for part in normalizer["normalizers"]]
        return {**normalizer, "normalizers": [part for part in parts if part is not None]}
    return normalizer


def _no_prefix(pre_tokenizer: Any, place: Place) -> Any:
    changed = copy.deepcopy(pre_tokenizer)
    parts = [] if changed is None else changed["pretokenizers"] if changed["type"] == "Sequence" else [changed]
    for part in parts:
        if part["type"] == "Metaspace" and (place == "inside" or part.get("prepend_scheme") == "first"):
            part["prepend_scheme"] = "never"
        if part["type"] == "ByteLevel" and place == "inside":
            part["add_prefix_space"] = False
    return changed
