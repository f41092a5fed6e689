"""What a terminal is shown of a run while it goes on."""

import sys
from collections.abc import AsyncIterable

from agentkv.runtime import RunEvent, events

__all__ = ("watch",)

_ARGUMENTS_SHOWN = 120


async def watch(run: AsyncIterable[RunEvent]) -> None:
    """Write the model's text as it is decoded, calls and their ends, and waiting in line, to standard error."""
    inside = False
    async for event in run:
        if isinstance(event, events.TextDelta):
            _write(event.text)
            inside = not event.text.endswith("\n") if event.text else inside
        elif line := _line(event):
            _write(f"\n{line}\n" if inside else f"{line}\n")
            inside = False
    if inside:
        _write("\n")


def _line(event: RunEvent) -> str:
    match event:
        case events.CallStarted(call=call):
            arguments = call.arguments if len(call.arguments) <= _ARGUMENTS_SHOWN else "..."
            return f"> {call.name} {arguments}"
        case events.CallFinished(status=status, index=index, node=node):
            return f"< {node}[{index}] {status}"
        case events.Queued(position=position):
            return f"waiting for room in the engine, number {position} in line"
        case _:
            return ""


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
