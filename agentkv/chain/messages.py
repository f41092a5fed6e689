"""The messages of a conversation, and their OpenAI chat form."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from attrs import field, frozen, validators

from agentkv.errors import TemplateError
from agentkv.tools.call import ToolCall

__all__ = ("Message", "Role", "ToolDefinition", "awaited", "from_openai", "to_openai")

Role = Literal["system", "user", "assistant", "tool"]


@frozen(kw_only=True)
class Message:
    """One message. ``calls`` belong to an assistant, ``call_id`` and ``name`` to a tool result."""

    role: Role = field(validator=validators.in_(get_args(Role)))
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""


@frozen(kw_only=True)
class ToolDefinition:
    """What the model is told of a tool; ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


def from_openai(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Read OpenAI chat messages whose content is text.

    Raises:
        TemplateError: a message has another role, content that is not text, or a call without a name.
    """
    return tuple(_read(index, message) for index, message in enumerate(messages))


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Write messages in the OpenAI chat form; keys that do not apply are left out."""
    return [_write(message) for message in messages]


def awaited(said: Sequence[Message]) -> ToolCall | None:
    """The call whose result comes behind ``said``: the first of the last turn's that has none; None if all have."""
    turn = next((i for i in reversed(range(len(said))) if said[i].role == "assistant"), None)
    calls = () if turn is None else said[turn].calls
    results = 0 if turn is None else len(said) - turn - 1
    return calls[results] if results < len(calls) else None


def _read(index: int, message: Mapping[str, Any]) -> Message:
    role = message.get("role")
    if role not in get_args(Role):
        raise TemplateError(f"message {index}: role {role!r} is not one of {', '.join(get_args(Role))}")
    return Message(
        role=cast("Role", role),
        content=_text(index, message.get("content")),
        calls=tuple(_read_call(index, call) for call in message.get("tool_calls") or ()),
        call_id=message.get("tool_call_id") or "",
        name=message.get("name") or "",
    )


def _text(index: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise TemplateError(f"message {index}: content must be text; leave out images and other parts")


def _read_call(index: int, call: Mapping[str, Any]) -> ToolCall:
    function: Mapping[str, Any] = call.get("function") or call
    name, arguments = function.get("name"), function.get("arguments", "{}")
    if not isinstance(name, str):
        raise TemplateError(f"message {index}: a call has no function name")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(str(call.get("id") or ""), name, arguments)


def _write(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.call_id:
        written["tool_call_id"] = message.call_id
    if message.name:
        written["name"] = message.name
    return written
