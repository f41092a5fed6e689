"""Text to token ids with one rule on top: the added vocabulary is for the template alone."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import tokenizers
from attrs import frozen

from agentkv.chain.added import AddedVocabulary, Match, Trust
from agentkv.chain.base_tokenizer import BaseTokenizer, Place
from agentkv.errors import SetupError

__all__ = ("Piece", "TextStream", "Tokenizer")

_STREAM_CONTEXT = 16
_SURROGATES = re.compile("[\ud800-\udfff]")


@frozen
class Piece:
    """Some text. ``trusted``: the template's own, in which added tokens count; otherwise it is only text."""

    text: str
    trusted: bool


class Tokenizer:
    """The tokenizer of a ``tokenizer.json``.

    Text is cut at the added tokens, special or not, that lie wholly in trusted text; what is between two of
    them is encoded as one text without the added vocabulary. So the ids are those of Hugging Face's
    tokenizers for the whole text, except that untrusted text never becomes an added token.
    """

    def __init__(self, text: str) -> None:
        spec = json.loads(text)
        self._whole = tokenizers.Tokenizer.from_str(text)
        added = {token.content: i for i, token in self._whole.get_added_tokens_decoder().items()}
        self.added: Mapping[str, int] = MappingProxyType(added)
        self.vocab_size: int = self._whole.get_vocab_size(with_added_tokens=True)
        self._added = AddedVocabulary(spec, added)
        self._base = BaseTokenizer(spec, added)

    @classmethod
    def load(cls, model_path: str | Path) -> "Tokenizer":
        """The tokenizer of a model folder. Raises ``SetupError`` where ``tokenizer.json`` is missing or broken."""
        path = Path(model_path) / "tokenizer.json"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(
                f"model folder {str(model_path)!r}: no readable tokenizer.json ({error}); save one there with "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            ) from error
        try:
            return cls.from_json(text)
        except SetupError as error:
            raise SetupError(f"model folder {str(model_path)!r}: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The tokenizer that a ``tokenizer.json`` describes. Raises ``SetupError`` where it describes none."""
        try:
            return cls(text)
        except Exception as error:  # the library raises bare Exception for a file that it cannot read
            raise SetupError(
                f"tokenizer.json is not one that the tokenizers library reads ({error}); save it anew"
            ) from error

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """The ids of the joined pieces. Raises ``SpecialTokenError`` where untrusted text has none."""
        trust = _joined(pieces)
        return self._encode(trust, self._added.find(trust), len(trust.text))

    def stable(self, pieces: Sequence[Piece]) -> list[int]:
        """The longest prefix of ``encode(pieces)`` that is sure to stay, whatever pieces or text follow.

        It can be shorter for a longer text, whose end is less clear; what was stable once stays so.
        """
        trust = _joined(pieces)
        matches = self._added.find(trust)
        settled = self._added.settled(trust, matches)
        closed = [match for match in matches if match.stop <= settled]
        last = closed[-1] if closed else None
        start = 0 if last is None else last.stop
        return self._encode(trust, closed, start) + self._base.stable(trust, start, settled, _place(last))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens included."""
        return self._whole.decode(list(ids), skip_special_tokens=False)

    def count(self, text: str) -> int:
        """How many tokens ``text`` is as untrusted text."""
        return len(self.encode([Piece(text, trusted=False)]))

    def stream(self) -> "TextStream":
        """A decoder for ids that come a few at a time."""
        return TextStream(self)

    def token_id(self, text: str) -> int | None:
        """The id of the added token that reads exactly ``text``, or None."""
        return self.added.get(text)

    def _encode(self, trust: Trust, matches: list[Match], end: int) -> list[int]:
        ids: list[int] = []
        at = 0
        before: Match | None = None
        for match in matches:
            ids += self._base.encode(trust, at, match.start, _place(before))
            ids.append(match.id)
            at, before = match.stop, match
        return ids + self._base.encode(trust, at, end, _place(before))


class TextStream:
    """Turns ids into text as they come. Text whose last character is not whole yet is held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = ""

    def feed(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` add, which may be none."""
        self._ids.extend(ids)
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd") or not text.startswith(self._shown):
            return ""
        new = text[len(self._shown) :]
        # Tokens are decoded in the light of those before them: a few are kept as context, the rest is settled.
        if len(self._ids) > 2 * _STREAM_CONTEXT:
            self._ids = self._ids[-_STREAM_CONTEXT:]
            text = self._tokenizer.decode(self._ids)
        self._shown = text
        return new


def _place(before: Match | None) -> Place:
    if before is None:
        return "first"
    return "late" if before.late else "after"


def _joined(pieces: Sequence[Piece]) -> Trust:
    """A lone surrogate is no text that could be encoded; U+FFFD says that something was there."""
    text = "".join(piece.text for piece in pieces)
    flags = b"".join((b"\1" if piece.trusted else b"\0") * len(piece.text) for piece in pieces)
    return Trust(_SURROGATES.sub("\ufffd", text), flags)
