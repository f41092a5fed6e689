"""Where a run's time went: waiting for first tokens, decoding, tools, and what was prefilled meanwhile."""

from collections.abc import Iterable, Sequence
from typing import Literal

from attrs import frozen

from agentkv.counted import counted

__all__ = ("Span", "SpanKind", "covered", "meanwhile", "timeline_lines")

SpanKind = Literal["ttft", "decode", "tool", "prefill"]


@frozen(kw_only=True)
class Span:
    """A stretch of time in clock seconds.

    ``ttft`` runs from the moment a generation could be asked for to its first token; ``after_tool`` marks
    that of a resume: of the first one behind tool results, or of the first of each branch that begins behind them.
    ``tokens`` are those decoded or prefilled in the span. ``branch``: it is that of a branch.
    ``ended`` says how a tool did: the status of its result; or ``raised``, or ``cancelled``, before it had one.
    """

    kind: SpanKind
    label: str
    start: float
    end: float
    tokens: int = 0
    after_tool: bool = False
    branch: bool = False
    ended: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def inside(self, other: "Span") -> float:
        """Seconds of this span that fall within ``other``."""
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))


def meanwhile(spans: Iterable[Span]) -> list[Span]:
    """The spans under which work ahead costs nobody a wait: those of tools, and of what branches generate."""
    return [span for span in spans if span.kind == "tool" or (span.branch and span.kind in ("ttft", "decode"))]


def covered(spans: Iterable[Span], kind: SpanKind) -> float:
    """Seconds during which at least one span of ``kind`` was open."""
    total, until = 0.0, float("-inf")
    for span in sorted((s for s in spans if s.kind == kind), key=lambda s: s.start):
        total += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total


_TITLES = {"decode": "decode", "tool": "tool", "prefill": "prefill ahead"}


def timeline_lines(spans: Sequence[Span]) -> list[str]:
    """One line a span, in order of start, in seconds from the first; prefills show the tool they ran under."""
    if not spans:
        return []
    zero = min(span.start for span in spans)
    return [
        f"  {span.start - zero:8.3f}s  {span.seconds:7.3f}s  {_describe(span, spans)}"
        for span in sorted(spans, key=lambda s: (s.start, s.end))
    ]


def _describe(span: Span, spans: Sequence[Span]) -> str:
    if span.kind == "ttft":
        return f"{'wait after tool' if span.after_tool else 'TTFT'}  {span.label}"
    text = f"{_TITLES[span.kind]}  {span.label}"
    if span.ended not in ("", "ok"):
        text += f"  ({span.ended})"
    if span.tokens:
        text += f"  {counted(span.tokens, 'token')}"
    under = dict.fromkeys(other.label for other in meanwhile(spans) if span.inside(other) > 0)
    if span.kind == "prefill" and under:
        text += f"  (while {', '.join(under)} ran)"
    return text
