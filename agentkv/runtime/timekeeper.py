"""Turns a run's events into the spans of its timeline."""

from agentkv.graph.path import Path, place
from agentkv.report import Span
from agentkv.runtime.events import (
    CallFinished,
    GenerationAsked,
    GenerationFinished,
    Prefetched,
    RunEvent,
)

__all__ = ("Timekeeper",)


class Timekeeper:
    """Keeps the spans of one run, in the order in which they ended."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._asked: dict[Path, GenerationAsked] = {}
        # Who has tool results that no generation has followed yet; and the fork that was the first to follow those.
        self._called: set[Path] = set()
        self._forked: dict[Path, tuple[str, int]] = {}
        self._begun: set[Path] = set()

    def spans(self) -> tuple[Span, ...]:
        """All spans so far."""
        return tuple(self._spans)

    def record(self, event: RunEvent) -> None:
        """Take note of an event."""
        match event:
            case CallFinished():
                self._called.add(event.branch)
                self._forked.pop(event.branch, None)
            case GenerationAsked():
                self._asked[event.branch] = event
                self._begin(event.branch)
            case GenerationFinished():
                self._generation(event)
            case Prefetched():
                label = place(event.branch, event.agent)
                self.add(Span(kind="prefill", label=label, start=event.sent_at, end=event.at, tokens=event.computed))
            case _:
                pass

    def _begin(self, branch: Path) -> None:
        """What a fork's branches generate first is behind the tool results that it is behind."""
        for depth in range(1, len(branch) + 1):
            path, outer, head = branch[:depth], branch[: depth - 1], branch[depth - 1]
            if path not in self._begun:
                self._begun.add(path)
                fork = (head.node, head.visit)
                if outer in self._called and self._forked.setdefault(outer, fork) == fork:
                    self._called.add(path)

    def _generation(self, event: GenerationFinished) -> None:
        asked = self._asked.pop(event.branch, None)
        if asked is None:
            return
        after = event.branch in self._called and event.branch not in self._forked
        label = place(event.branch, event.node)
        self._called.discard(event.branch)
        self._forked.pop(event.branch, None)
        tokens, inner = len(event.token_ids), bool(event.branch)
        self.add(
            Span(kind="ttft", label=label, start=asked.asked_at, end=event.first_at, after_tool=after, branch=inner)
        )
        self.add(Span(kind="decode", label=label, start=event.first_at, end=event.at, tokens=tokens, branch=inner))

    def add(self, span: Span) -> None:
        """Keep a span that no event tells of."""
        self._spans.append(span)
