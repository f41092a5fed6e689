"""Recorded conversations of agents: read from files, and checked before anything runs.

One JSON object a line: ``{"id", "system", "tools": [OpenAI tool], "turns": [{"role": "user" | "assistant" | "tool",
"content", "tool_calls"?: [{"id", "name", "arguments"}], "tool_call_id"?, "latency_s"?}]}``; other fields are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from agentkv.chain import Message, ToolDefinition, from_openai
from agentkv.errors import SetupError, TemplateError
from agentkv.trace.trace_file import Line, read_lines, seconds, typed

__all__ = ("Trajectory", "read_trajectories")


@frozen(kw_only=True)
class Trajectory:
    """One conversation, up to the last turn of the assistant.

    ``latencies`` has for each message the seconds that its tool took, where they were recorded. Every result answers
    a call of the assistant's turn before it, and every call but those of the last turn has its result.
    """

    id: str
    place: str
    system: str
    tools: tuple[ToolDefinition, ...]
    messages: tuple[Message, ...]
    latencies: tuple[float | None, ...]


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The conversations of a file. Raises ``SetupError`` that names file, line and turn."""
    for line in read_lines(path):
        yield _trajectory(line)


def _trajectory(line: Line) -> Trajectory:
    system = line.fields.get("system") or ""
    if not isinstance(system, str):
        raise SetupError(f"{line.place}: field 'system' must be text")
    tools = line.field("tools", list) if line.fields.get("tools") else ()
    turns = line.field("turns", list)
    messages = _messages(turns, line.place)
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=None)
    if last is None:
        raise SetupError(f"{line.place}: no turn is the assistant's, so that there is nothing to replay; leave it out")
    kept = _checked(messages[: last + 1], line.place)
    return Trajectory(
        id=line.field("id", str),
        place=line.place,
        system=system,
        tools=tuple(_tool(tool, line.place) for tool in tools),
        messages=kept,
        latencies=tuple(_latency(turn, f"{line.place}, turn {at}") for at, turn in enumerate(turns[: last + 1])),
    )


def _messages(turns: Sequence[Any], place: str) -> tuple[Message, ...]:
    for at, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise SetupError(f"{place}, turn {at}: must be an object with 'role' and 'content'")
        if not isinstance(turn.get("tool_call_id") or "", str):
            raise SetupError(f"{place}, turn {at}: 'tool_call_id' must be text")
    try:
        return from_openai(turns)
    except (TemplateError, TypeError, AttributeError) as error:
        # The reader of OpenAI messages names the message, and takes the form of calls for granted.
        raise SetupError(f"{place}: {str(error).replace('message ', 'turn ', 1)}") from error


def _checked(messages: Sequence[Message], place: str) -> tuple[Message, ...]:
    """The messages with the names of tools beside their results. Raises ``SetupError`` for an order that cannot be."""
    found: list[Message] = []
    waiting: dict[str, str] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in waiting:
                raise SetupError(
                    f"{place}, turn {at}: a result for call {message.call_id!r}, which the assistant's turn before it "
                    "did not make or which has one already; give it the id of its call"
                )
            found.append(evolve(message, name=waiting.pop(message.call_id)))
            continue
        if problem := _out_of_order(message, found, waiting):
            raise SetupError(f"{place}, turn {at}: {problem}")
        found.append(message)
        if message.role == "assistant":
            waiting = {call.id: call.name for call in message.calls}
            if len(waiting) < len(message.calls):
                raise SetupError(f"{place}, turn {at}: two calls have one id; give each its own")
    return tuple(found)


def _out_of_order(message: Message, before: Sequence[Message], waiting: Mapping[str, str]) -> str:
    """Why the message, which is no result, cannot stand behind ``before``; empty if it can."""
    if message.role == "system":
        return "a system message; instructions belong into the field 'system'"
    if waiting:
        return f"{message.role!r} before call {next(iter(waiting))!r} has its result; give every call one"
    if message.role == "assistant" and not before:
        return "the assistant speaks first; begin with what it was asked"
    if message.role == "assistant" and before[-1].role == "assistant":
        return "the assistant speaks twice in a row; join the two turns"
    return ""


def _latency(turn: Mapping[str, Any], place: str) -> float | None:
    if turn["role"] != "tool" or turn.get("latency_s") is None:
        return None
    return seconds(turn, "latency_s", place)


def _tool(tool: Any, place: str) -> ToolDefinition:
    function = (tool.get("function") or tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise SetupError(f"{place}: an entry of 'tools' is no object; give OpenAI tool definitions")
    name = typed(function, "name", str, f"{place}, tools")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise SetupError(f"{place}, tool {name!r}: 'parameters' must be a JSON schema")
    return ToolDefinition(name=name, description=str(function.get("description") or ""), parameters=parameters)
