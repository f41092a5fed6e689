"""What is appended to a chain by hand, checked before it is part of a prompt."""

from collections import Counter
from collections.abc import Sequence

from agentkv.chain import Message
from agentkv.errors import SetupError
from agentkv.tools import ToolCall

__all__ = ("check_messages", "check_results")


def check_messages(given: Sequence[object]) -> None:
    """Raise ``SetupError`` for what is no message, or one with parts of another type."""
    for each in given:
        if not isinstance(each, str | Message):
            raise SetupError(f"append() takes texts and akv.Message(...), not {type(each).__name__}")
        if isinstance(each, Message):
            for name in ("content", "call_id", "name"):
                if not isinstance(value := getattr(each, name), str):
                    raise SetupError(f"append(): Message.{name}={value!r} must be text")
            calls: object = each.calls
            if not isinstance(calls, tuple) or not all(map(_is_call, calls)):
                raise SetupError(f"append(): Message.calls={calls!r} must be a tuple of akv.ToolCall(...), of texts")


def _is_call(given: object) -> bool:
    return isinstance(given, ToolCall) and all(isinstance(getattr(given, part), str) for part in ("id", "name"))


def check_results(before: tuple[Message, ...], new: tuple[Message, ...]) -> None:
    """Raise ``SetupError`` unless each tool's result among ``new`` is that of a call that awaits one."""
    awaited = Counter[str]()
    for place, message in enumerate((*before, *new)):
        awaited.update(call.id for call in message.calls)
        if message.role == "tool" and not awaited[message.call_id] and place >= len(before):
            known = ", ".join(map(repr, awaited.elements())) or "none is"
            raise SetupError(
                f"append(): a result of call {message.call_id!r} is not awaited ({known}); give its call_id"
            )
        awaited[message.call_id] -= message.role == "tool"
