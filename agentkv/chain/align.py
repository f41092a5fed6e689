"""Which characters of a rendered prompt came from untrusted text.

The method: render once plainly and once with each untrusted text wrapped in private-use characters that no
text of the conversation holds. Where the template treats wrapped text like plain text, taking the wrapping
out gives the plain rendering again and shows where each text went. Templates that look into a text
(``'</think>' in content``) need its tags left outside the wrapping; texts that cannot be wrapped at all are
looked up between their neighbours, and refused when that is ambiguous.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import field, frozen

from agentkv.chain.layout import Layout, Leaf, leaves, replace
from agentkv.errors import TemplateError

__all__ = ("align",)

_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_BASE = 8
_TAG = re.compile(r"</?([\w|:-]{1,40})>|\[/?([A-Z_]{2,40})\]")


@frozen(kw_only=True)
class _Core:
    """Characters [start, end) of a leaf's text, wrapped as one; none of them for a text of white space."""

    leaf: int
    start: int
    end: int


@frozen(kw_only=True)
class _Span:
    """Characters [start, end) of the rendering that hold ``core``."""

    core: _Core
    start: int
    end: int


@frozen
class _Marks:
    """The characters that wrap: digits of a core's number, then ``opening`` or ``closing``."""

    digits: str
    opening: str
    closing: str
    pattern: re.Pattern[str] = field(init=False)

    @pattern.default
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"([{self.digits}]+)([{self.opening}{self.closing}])")

    @classmethod
    def unused_in(cls, texts: Iterable[str]) -> "_Marks":
        used = {char for text in texts for char in set(text) if ord(char) in _PRIVATE_USE}
        free = [char for char in map(chr, _PRIVATE_USE[: len(used) + _BASE + 2]) if char not in used]
        if len(free) < _BASE + 2:
            raise TemplateError("the conversation holds every private-use character; remove some of them")
        return cls("".join(free[:_BASE]), free[_BASE], free[_BASE + 1])

    def wrap(self, number: int, text: str) -> str:
        label = "".join(self.digits[int(digit)] for digit in format(number, "o"))
        return f"{label}{self.opening}{text}{label}{self.closing}"

    def number(self, label: str) -> int:
        return int("".join(str(self.digits.index(char)) for char in label), _BASE)


def align(source: str, value: object, run: Callable[[object], str]) -> Layout:
    """Render ``value`` with ``run`` and tell trusted from untrusted characters.

    ``source`` is the template's own text; ``run`` renders a value without leaves.

    Raises:
        TemplateError: the template moves or edits a text in a way that hides where it went.
    """
    return _Alignment(source, value, run).layout()


class _Alignment:
    def __init__(self, source: str, value: object, run: Callable[[object], str]) -> None:
        self._source, self._value, self._run = source, value, run
        self._leaves = list(leaves(value))
        self._texts = [leaf.text for leaf in self._leaves]
        self._trust = [leaf.trust() for leaf in self._leaves]
        self._plain = run(replace(value, iter(self._texts)))
        self._marks = _Marks.unused_in([*self._texts, self._plain])

    def layout(self) -> Layout:
        whole = {index: _cores(index, leaf, ()) for index, leaf in enumerate(self._leaves)}
        spans = self._attempt(whole)
        if spans is None:
            spans = self._piecewise(whole)
        return self._paint(spans)

    def _attempt(self, cores: Mapping[int, Sequence[_Core]]) -> list[_Span] | None:
        """Render with ``cores`` wrapped; None when the template then does something else."""
        numbered: list[_Core] = []
        marked = list(self._texts)
        for index, found in cores.items():
            parts, at = [], 0
            for core in found:
                parts += [marked[index][at : core.start], self._marks.wrap(len(numbered), self._cut(core))]
                numbered.append(core)
                at = core.end
            marked[index] = "".join(parts) + marked[index][at:]
        try:
            rendered = self._run(replace(self._value, iter(marked)))
        except TemplateError:
            return None
        return self._read(rendered, numbered)

    def _cut(self, core: _Core) -> str:
        return self._texts[core.leaf][core.start : core.end]

    def _read(self, rendered: str, numbered: Sequence[_Core]) -> list[_Span] | None:
        spans: list[_Span] = []
        opened: dict[int, int] = {}
        parts, at, length = [], 0, 0
        for mark in self._marks.pattern.finditer(rendered):
            parts.append(rendered[at : mark.start()])
            length += mark.start() - at
            at = mark.end()
            number = self._marks.number(mark[1])
            if mark[2] == self._marks.opening:
                opened[number] = length
            elif number not in opened:
                return None
            else:
                spans.append(_Span(core=numbered[number], start=opened.pop(number), end=length))
        if opened or "".join(parts) + rendered[at:] != self._plain:
            return None
        return spans

    def _piecewise(self, whole: Mapping[int, Sequence[_Core]]) -> list[_Span]:
        """Wrap what can be wrapped, leave tags outside where that helps, look up the rest."""
        lost: list[int] = []
        cores = dict(whole)
        for index in self._unsafe(whole, list(whole)):
            tagged = self._around_tags(index)
            cores[index] = tagged
            if not tagged and not self._is_harmless(self._texts[index]):
                lost.append(index)
        spans = self._attempt(cores)
        if spans is None:
            raise TemplateError("the chat template depends on several texts at once; use another template")
        for index in lost:
            spans += self._locate(index, spans)
        return sorted(spans, key=lambda span: (span.start, span.end))

    def _unsafe(self, whole: Mapping[int, Sequence[_Core]], indices: list[int]) -> list[int]:
        if self._attempt({index: whole[index] for index in indices}) is not None:
            return []
        if len(indices) == 1:
            return indices
        half = len(indices) // 2
        return self._unsafe(whole, indices[:half]) + self._unsafe(whole, indices[half:])

    def _around_tags(self, index: int) -> Sequence[_Core]:
        """Cores that leave one kind of tag outside, a tag that the template itself names; () if none helps."""
        text = self._texts[index]
        names = dict.fromkeys(tag[1] or tag[2] for tag in _TAG.finditer(text) if tag[0] in self._source)
        for name in names:
            tags = tuple(t for t in (f"<{name}>", f"</{name}>", f"[{name}]", f"[/{name}]") if t in text)
            cores = _cores(index, self._leaves[index], tags)
            if cores and self._attempt({index: cores}) is not None:
                return cores
        return ()

    def _is_harmless(self, text: str) -> bool:
        """White space, or a word that neither is a control token nor completes one."""
        tokens = (f"<{text}>", f"</{text}>", f"<|{text}|>", f"[{text}]", f"[/{text}]")
        return not text.strip() or (text.isidentifier() and not any(token in self._plain for token in tokens))

    def _locate(self, index: int, spans: Sequence[_Span]) -> list[_Span]:
        low = max((span.end for span in spans if span.core.leaf < index), default=0)
        behind = (span.start for span in spans if span.core.leaf > index and span.start >= low)
        high = min(behind, default=len(self._plain))
        text = self._texts[index].strip()
        forms = dict.fromkeys((text, json.dumps(text, ensure_ascii=False)[1:-1]))
        for left, right in ((low, high), (0, len(self._plain))):
            for form in forms:
                at = self._plain.find(form, left, right)
                if at >= 0 and self._plain.find(form, at + 1, right) < 0:
                    return [_found(index, at, form)]
            if not _TAG.sub("", text).strip():
                # Nothing but tags, some of which the template took out: whichever are there may be the text's.
                tags = {tag[0] for tag in _TAG.finditer(text)}
                within = _TAG.finditer(self._plain, left, right)
                return [_found(index, tag.start(), tag[0]) for tag in within if tag[0] in tags]
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise TemplateError(
            f"cannot tell where the chat template puts the text {shown!r}; change that text or the template"
        )

    def _paint(self, spans: Sequence[_Span]) -> Layout:
        trust = bytearray(b"\x01") * len(self._plain)
        cuts: list[int] = []
        for group in _groups(spans):
            start, end = self._paint_group(group, trust)
            cuts += {"none": [], "before": [start], "around": [start, end]}[self._leaves[group[0].core.leaf].cut]
        return Layout(self._plain, bytes(trust), tuple(cuts))

    def _paint_group(self, group: Sequence[_Span], trust: bytearray) -> tuple[int, int]:
        """Colour one appearance of a leaf, with as much of its own text around the cores as is there."""
        leaf = group[0].core.leaf
        text, own = self._texts[leaf], self._trust[leaf]
        start, end = group[0].start, group[-1].end
        for index, span in enumerate(group):
            last, following = index + 1 == len(group), group[min(index + 1, len(group) - 1)]
            previous = group[index - 1] if index else None
            left = text[previous.core.end if previous else 0 : span.core.start]
            right = text[span.core.end : None if last else following.core.start]
            back = _shared(left[::-1], self._plain[previous.end if previous else 0 : span.start][::-1])
            ahead = _shared(right, self._plain[span.end : None if last else following.start])
            trust[span.start - back : span.start] = own[span.core.start - back : span.core.start]
            trust[span.start : span.end] = bytes(span.end - span.start)
            trust[span.end : span.end + ahead] = own[span.core.end : span.core.end + ahead]
            start -= _own(self._plain[span.start - back : span.start], left) if index == 0 else 0
            end += _own(self._plain[span.end : span.end + ahead][::-1], right) if last else 0
        return start, end


def _found(leaf: int, start: int, text: str) -> _Span:
    return _Span(core=_Core(leaf=leaf, start=0, end=0), start=start, end=start + len(text))


def _own(shared: str, around: str) -> int:
    """How much of ``shared``, read from outside, is the leaf's text and not the template's white space."""
    return len(shared) if len(shared) == len(around) else len(shared.lstrip())


def _groups(spans: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Spans of one leaf in a row, in the leaf's order: one appearance of the leaf each."""
    group: list[_Span] = []
    for span in spans:
        if group and (span.core.leaf != group[-1].core.leaf or span.core.start < group[-1].core.end):
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _cores(index: int, leaf: Leaf, tags: tuple[str, ...]) -> list[_Core]:
    """The untrusted parts of a leaf without white space (and ``tags``) at their ends."""
    found: list[_Core] = []
    at = 0
    splitter = re.compile("|".join(map(re.escape, tags))) if tags else None
    for piece in leaf.pieces:
        if not piece.trusted and piece.text:
            found_tags = splitter.finditer(piece.text) if splitter else ()
            inner = [at + border for tag in found_tags for border in tag.span()]
            borders = [at, *inner, at + len(piece.text)]
            for left, right in zip(borders[::2], borders[1::2], strict=True):
                found += _core(index, leaf.text, left, right, keep_empty=not tags and not leaf.text.strip())
        at += len(piece.text)
    return found


def _core(index: int, text: str, left: int, right: int, keep_empty: bool) -> list[_Core]:
    inner = text[left:right]
    start = left + len(inner) - len(inner.lstrip())
    end = max(start, right - (len(inner) - len(inner.rstrip())))
    if start == end and not keep_empty:
        return []
    return [_Core(leaf=index, start=start, end=end)]


def _shared(own: str, rendered: str) -> int:
    """Length of the common prefix."""
    count = 0
    for mine, theirs in zip(own, rendered, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
