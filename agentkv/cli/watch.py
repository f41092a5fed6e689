"""What a terminal is shown of a run while it goes on."""

import sys
from collections.abc import AsyncIterable, Iterable

from agentkv.graph.path import Path, place
from agentkv.runtime import RunEvent, events

__all__ = ("watch",)

_ARGUMENTS_SHOWN = 120


async def watch(run: AsyncIterable[RunEvent], *, hidden: Iterable[str] = ()) -> None:
    """Write the model's text, calls and their ends, and waiting in line to standard error.

    Text of the main chain is written as it is decoded; that of branches, which decode at the same time, when each
    is complete. ``hidden`` texts are left out: tokens that end a turn.
    """
    screen = _Screen(tuple(hidden))
    async for event in run:
        screen.show(event)
    screen.end_line()


class _Screen:
    def __init__(self, hidden: tuple[str, ...]) -> None:
        self._hidden = hidden
        self._inside = False
        self._branches: dict[Path, str] = {}

    def show(self, event: RunEvent) -> None:
        match event:
            case events.TextDelta(text=text, branch=()):
                self._text(text)
            case events.TextDelta(text=text, branch=branch):
                self._branches[branch] = self._branches.get(branch, "") + text
            case events.GenerationFinished(branch=branch):
                if branch in self._branches:
                    self._line(f"[{place(branch)}]")
                    self._text(self._branches.pop(branch))
                self.end_line()
            case events.CallStarted(call=call, branch=branch):
                arguments = call.arguments if len(call.arguments) <= _ARGUMENTS_SHOWN else "..."
                self._line(f"> {_where(branch)}{call.name} {arguments}")
            case events.CallFinished(status=status, index=index, node=node, branch=branch):
                self._line(f"< {_where(branch)}{node}[{index}] {status}")
            case events.Queued(position=position):
                self._line(f"waiting for room in the engine, number {position} in line")

    def end_line(self) -> None:
        """Leave the cursor at the start of a line."""
        if self._inside:
            _write("\n")
            self._inside = False

    def _text(self, text: str) -> None:
        for each in self._hidden:
            text = text.replace(each, "")
        if text:
            _write(text)
            self._inside = not text.endswith("\n")

    def _line(self, text: str) -> None:
        self.end_line()
        _write(f"{text}\n")


def _where(branch: Path) -> str:
    return f"{place(branch)}: " if branch else ""


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
