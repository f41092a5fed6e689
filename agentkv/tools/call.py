"""A model's call of a tool, and what came of it."""

import json
from typing import Literal

from attrs import field, frozen

from agentkv.tools.serialize import clean_text

__all__ = ("Outcome", "Status", "ToolCall")

Status = Literal["ok", "retry", "failed", "timeout", "invalid", "unknown_tool", "cancelled"]

_SHOWN = 64


def _canonical(text: str) -> str:
    try:
        value = json.loads(text, parse_constant=_refuse)
        # A number beyond all floats is read as an infinity, which JSON has no form for.
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    except (ValueError, RecursionError):
        return clean_text(text)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@frozen
class ToolCall:
    """One call, as the model wrote it.

    ``id`` is unique in its run and made from the call's position (``"call_0001"``), never at random.
    ``arguments`` is compact JSON in the model's own key order; text that is not JSON is kept as it is.
    """

    id: str
    name: str
    arguments: str = field(converter=_canonical)

    @property
    def key(self) -> tuple[str, str]:
        """Equal for calls of one tool whose arguments are equal as JSON, whatever the key order."""
        try:
            value = json.loads(self.arguments, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return self.name, self.arguments
        return self.name, json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@frozen
class Outcome:
    """What the model is told about one call.

    ``text`` depends on the call and the tool alone: no times, ids or tracebacks. ``note`` is what the model must read
    behind it, however much of the text is cut: why a stream ended early. ``abandoned`` says that the
    tool outlived the call and runs on: in a worker thread, or since it does not end when it is cancelled.
    """

    status: Status
    text: str
    abandoned: bool = False
    note: str = ""

    @property
    def whole(self) -> str:
        """Text and note."""
        return "\n".join(part for part in (self.text, self.note) if part)

    @classmethod
    def unknown_tool(cls, name: str, known: tuple[str, ...]) -> "Outcome":
        """The outcome of a call of a tool that the agent does not have; lists those that it has."""
        shown = clean_text(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")
        return cls("unknown_tool", f"There is no tool {shown!r}. Available: {', '.join(known) or 'none'}.")

    @classmethod
    def cancelled(cls) -> "Outcome":
        """The outcome of a call that was cancelled before it had a result."""
        return cls("cancelled", "The call was cancelled.")
