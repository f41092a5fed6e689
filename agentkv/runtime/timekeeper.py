"""Turns a run's events into the spans of its timeline."""

from agentkv.report import Span
from agentkv.runtime.events import (
    CallFinished,
    CallStarted,
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
        self._calls: dict[int, CallStarted] = {}
        self._asked: GenerationAsked | None = None
        self._called = False

    def spans(self) -> tuple[Span, ...]:
        """All spans so far."""
        return tuple(self._spans)

    def record(self, event: RunEvent) -> None:
        """Take note of an event."""
        match event:
            case CallStarted():
                self._calls[event.index] = event
            case CallFinished():
                self._tool(event)
            case GenerationAsked():
                self._asked = event
            case GenerationFinished():
                self._generation(event)
            case Prefetched():
                self._add(
                    Span(kind="prefill", label=event.agent, start=event.sent_at, end=event.at, tokens=event.computed)
                )
            case _:
                pass

    def _tool(self, event: CallFinished) -> None:
        self._called = True
        started = self._calls.pop(event.index, None)
        if started is not None:
            self._add(Span(kind="tool", label=started.call.name, start=started.at, end=event.at))

    def _generation(self, event: GenerationFinished) -> None:
        if self._asked is None:
            return
        asked, self._asked = self._asked, None
        after, self._called = self._called, False
        tokens = len(event.token_ids)
        self._add(Span(kind="ttft", label=event.node, start=asked.asked_at, end=event.first_at, after_tool=after))
        self._add(Span(kind="decode", label=event.node, start=event.first_at, end=event.at, tokens=tokens))

    def _add(self, span: Span) -> None:
        self._spans.append(span)
