"""Shorten a text to a number of tokens."""

from typing import Literal

from agentkv.chain.tokenizer import Piece, Tokenizer

__all__ = ("Keep", "lasting", "truncate")

Keep = Literal["head", "tail", "head+tail"]


# Wide enough for any count, so that how much of the head stays does not depend on how long the text gets.
_WIDEST = "\n[~9999999999 tokens cut]\n"
# Characters up to which a text's tokens are counted, however few may stay, and how many for each that may stay. Of a
# longer text that surely does not fit they are estimated: reading all of it would hold up everybody else.
_COUNTED, _COUNTED_PER_TOKEN = 200_000, 16
# The last few tokens of a beginning can merge with what follows it.
_BORDER = 16


def truncate(text: str, max_tokens: int, keep: Keep, tokenizer: Tokenizer) -> str:
    """``text`` with the part that ``keep`` does not name replaced by a line that says how many tokens went.

    The result, line included, encodes to at most ``max_tokens`` tokens; where these do not suffice for the
    line, it is left out. Of a very long text the line says about how many, as ``~``. Depends on its arguments
    alone. A text that fits is returned as it is.
    """
    total, about = _total(text, max_tokens, tokenizer)
    if total <= max_tokens:
        return text
    room = max_tokens - _count(_WIDEST, tokenizer)
    if room <= 0:
        return _kept(text, max_tokens, "tail" if keep == "tail" else "head", tokenizer)[keep == "tail"]
    while True:
        first, last = _kept(text, room, keep, tokenizer)
        marker = f"[{about}{total - _count(first, tokenizer) - _count(last, tokenizer)} tokens cut]"
        result = "\n".join(part for part in (first, marker, last) if part)
        if _count(result, tokenizer) <= max_tokens or room == 0:
            return result
        room -= 1


def lasting(text: str, max_tokens: int, keep: Keep, tokenizer: Tokenizer) -> str:
    """The beginning of ``text`` that ``truncate`` keeps, whatever text follows and however much of it.

    With ``keep="tail"`` there is none. A text that may grow is best cut by this again when it has grown by a good part.
    """
    room = max_tokens - _count(_WIDEST, tokenizer)
    if keep == "tail":
        return ""
    head = max_tokens if room <= 0 else room if keep == "head" else room - room // 2
    return text[: _longest(text, head, tokenizer, from_end=False)]


def _total(text: str, max_tokens: int, tokenizer: Tokenizer) -> tuple[int, str]:
    """The tokens of ``text``, and ``"~"`` where they are estimated: from a beginning that does not fit by itself."""
    size = max(_COUNTED, _COUNTED_PER_TOKEN * max_tokens)
    while size < len(text):
        count = _count(text[:size], tokenizer)
        if count > max_tokens + _BORDER:
            return count * len(text) // size, "~"
        size *= 2
    return _count(text, tokenizer), ""


def _kept(text: str, room: int, keep: Keep, tokenizer: Tokenizer) -> tuple[str, str]:
    """The beginning and the end that stay."""
    head = {"head": room, "tail": 0, "head+tail": room - room // 2}[keep]
    first = text[: _longest(text, head, tokenizer, from_end=False)]
    behind = text[len(first) :]
    size = _longest(behind, 0 if keep == "head" else room - head, tokenizer, from_end=True)
    return first, behind[len(behind) - size :]


def _longest(text: str, limit: int, tokenizer: Tokenizer, from_end: bool) -> int:
    """The most characters at one end of ``text`` that encode to ``limit`` tokens at most.

    Tokens are not monotone in characters to the last one (a longer text can merge better), so the boundary
    found by bisection is walked back until it holds.
    """
    if limit <= 0:
        return 0

    def fits(size: int) -> bool:
        return _count(text[len(text) - size :] if from_end else text[:size], tokenizer) <= limit

    low, high = 0, min(len(text), 2 * limit)
    if high == len(text) and fits(high):
        return high
    while high < len(text) and fits(high):
        low, high = high, min(len(text), 2 * high)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    while not fits(low):
        low -= 1
    return low


def _count(text: str, tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode([Piece(text, False)]))
