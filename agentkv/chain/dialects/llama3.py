"""The dialect of Llama 3.x: a message that is nothing but JSON objects is a list of calls."""

import json
import re
from collections.abc import Sequence

from attrs import frozen
from typing_extensions import override

from agentkv.chain.constraint import Format, TurnShape, any_text, constant, json_schema, one_of, sequence, up_to
from agentkv.chain.dialects.base import CallText, Dialect, arguments_text, members, trusted, untrusted
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.tokenizer import Piece

__all__ = ("Llama3Dialect",)

_PYTHON_TAG = "<|python_tag|>"
_SEPARATOR = "; "
_ARGUMENT_KEYS = ("parameters", "arguments")
# The beginning of a call that the generation's end cut off.
_CUT_CALL = re.compile(r'\{\s*"name"\s*:\s*"')


@frozen
class Llama3Dialect(Dialect):
    """``{"name": ..., "parameters": ...}``, several calls separated by ``"; "``; no text beside them."""

    @property
    @override
    def name(self) -> str:
        return "llama3"

    @property
    @override
    def call_marks(self) -> tuple[str, ...]:
        return ('{"name":',)

    @override
    def write(self, message: Message) -> list[Piece]:
        pieces = [untrusted(message.content)] if message.content else []
        for index, call in enumerate(message.calls):
            before = _SEPARATOR if index else "\n" if pieces else ""
            pieces += [
                trusted(before + '{"name": "'),
                untrusted(json.dumps(call.name, ensure_ascii=False)[1:-1]),
                trusted('", "parameters": '),
                untrusted(arguments_text(call)),
                trusted("}"),
            ]
        return pieces

    @override
    def calls_format(self, shape: TurnShape, names: Sequence[str] | None, first: int) -> Format:
        if names is None:
            return up_to([one_of(map(_call, shape.tools))] * shape.max_calls, _SEPARATOR)
        calls = [_call(shape.tool(name)) for name in names]
        return sequence(*[part for call in calls for part in (constant(_SEPARATOR), call)][1:])

    @override
    def mixed_format(self, shape: TurnShape, first: int) -> Format:
        return one_of([self.calls_format(shape, None, first), any_text(self.call_marks)])

    @override
    def find_calls(self, text: str) -> tuple[list[CallText], str]:
        start = _start(text)
        if start is None:
            return [], text
        calls: list[CallText] = []
        at = start
        while at < len(text):
            read = _read(text, at)
            if read is None:
                calls.append(_broken(text[at:].strip()))
                break
            call, at = read
            calls.append(call)
            at += len(text[at:]) - len(text[at:].lstrip("; \n"))
        return calls, text[:start].replace(_PYTHON_TAG, "").removesuffix("\n")


def _call(tool: ToolDefinition) -> Format:
    begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "parameters": '
    return sequence(constant(begin), json_schema(tool.parameters), constant("}"))


def _start(text: str) -> int | None:
    """Where calls begin: at the first line that opens an object with a name and parameters."""
    at = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().removeprefix(_PYTHON_TAG).lstrip().startswith("{"):
            start = at + line.index("{")
            if _is_call(text, start):
                return start
        at += len(line)
    return None


def _is_call(text: str, start: int) -> bool:
    try:
        keys = {key for key, _, _ in members(text, start)}
    except (ValueError, RecursionError):
        return _CUT_CALL.match(text, start) is not None
    return "name" in keys and not keys.isdisjoint(_ARGUMENT_KEYS)


def _read(text: str, start: int) -> tuple[CallText, int] | None:
    try:
        found = {key: (begin, end) for key, begin, end in members(text, start)}
        name = json.loads(text[slice(*found["name"])])
    except (ValueError, KeyError, RecursionError):
        return None
    key = next((key for key in _ARGUMENT_KEYS if key in found), None)
    arguments = text[slice(*found[key])] if key else "{}"
    return (CallText(name=name, arguments=arguments), found[""][1]) if isinstance(name, str) else None


def _broken(text: str) -> CallText:
    """A call whose JSON is not complete: its name if that is, and its arguments as far as they go."""
    name, arguments = "", text
    try:
        for key, begin, end in members(text, 0):
            if key == "name":
                name, arguments = str(json.loads(text[begin:end])), text[end:]
    except (ValueError, RecursionError):
        pass
    _, found, rest = arguments.partition('"parameters":')
    return CallText(name=name, arguments=(rest if found else arguments).strip())
