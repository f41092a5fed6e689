"""The dialect of Hermes, Qwen and other ChatML models: calls in ``<tool_call>`` tags."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from typing_extensions import override

from agentkv.chain.constraint import Format, TurnShape, constant, json_schema, one_of, sequence, up_to
from agentkv.chain.dialects.base import (
    CallText,
    Dialect,
    TemplateInput,
    arguments_text,
    members,
    trusted,
    untrusted,
)
from agentkv.chain.layout import Leaf
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import message_input
from agentkv.chain.tokenizer import Piece, Tokenizer

__all__ = ("HermesDialect",)

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAME = re.compile(r'"name"\s*:\s*"((?:[^"\\]|\\.)*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')
# The end of a call that is no valid JSON: the first closing tag outside of a string.
_BROKEN = re.compile(r'(?:"(?:[^"\\]|\\.)*"|(?!</tool_call>)[^"])*')


@frozen
class HermesDialect(Dialect):
    """``<tool_call>`` with a JSON object on its own line, results in ``<tool_response>``.

    ``native_calls``: the template writes calls just as ``write`` does.
    """

    native_calls: bool = False

    @property
    @override
    def name(self) -> str:
        return "hermes"

    @property
    @override
    def call_marks(self) -> tuple[str, ...]:
        return (_OPEN,)

    @override
    def input(self, system: str, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> TemplateInput:
        if self.native_tools:
            return super().input(system, tools, messages)
        content = [untrusted(system)] if system else []
        if tools:
            content += [trusted("\n\n")] if system else []
            content += _definitions(tools)
        head = [{"role": "system", "content": Leaf(tuple(content))}] if content else []
        return TemplateInput(messages=(*head, *self._messages(messages)), tools=())

    def _messages(self, messages: Sequence[Message]) -> Iterator[Mapping[str, Any]]:
        results: list[Piece] = []
        for index, message in enumerate(messages):
            if message.role == "tool":
                results += [trusted("\n")] if results else []
                results += [trusted("<tool_response>\n"), untrusted(message.content), trusted("\n</tool_response>")]
                if index + 1 == len(messages) or messages[index + 1].role != "tool":
                    yield {"role": "user", "content": Leaf(tuple(results))}
                    results = []
            elif message.role == "assistant":
                yield self.assistant(message)
            else:
                yield {"role": message.role, "content": Leaf.untrusted(message.content)}

    @override
    def bind(self, tokenizer: Tokenizer) -> "HermesDialect":
        # Where the tag is no token, a call's beginning would not be a border between tokens.
        return evolve(self, native_calls=self.native_calls and tokenizer.token_id(_OPEN) is not None)

    @override
    def assistant(self, message: Message) -> Mapping[str, Any]:
        # A template that looks into contents (Qwen3's splits them at ``</think>``) must not find calls there.
        if self.native_calls and message.calls and all(_is_object(call.arguments) for call in message.calls):
            return message_input(message)
        return super().assistant(message)

    @override
    def write(self, message: Message) -> list[Piece]:
        pieces = [untrusted(message.content)] if message.content else []
        for call in message.calls:
            pieces += [
                trusted(("\n" if pieces else "") + _OPEN + '\n{"name": "'),
                untrusted(json.dumps(call.name, ensure_ascii=False)[1:-1]),
                trusted('", "arguments": '),
                untrusted(arguments_text(call)),
                trusted("}\n" + _CLOSE),
            ]
        return pieces

    @override
    def calls_format(self, shape: TurnShape, names: Sequence[str] | None, first: int) -> Format:
        if names is None:
            return up_to([one_of(map(_call, shape.tools))] * shape.max_calls, "\n")
        calls = [_call(shape.tool(name)) for name in names]
        return sequence(*[part for call in calls for part in (constant("\n"), call)][1:])

    @override
    def mixed_format(self, shape: TurnShape, first: int) -> Format:
        tags = [
            {"type": "tag", "begin": _begin(t), "content": json_schema(t.parameters), "end": _END} for t in shape.tools
        ]
        return {
            "type": "triggered_tags",
            "triggers": [_OPEN],
            "tags": tags,
            "at_least_one": False,
            "stop_after_first": shape.max_calls == 1,
        }

    @override
    def find_calls(self, text: str) -> tuple[list[CallText], str]:
        calls: list[CallText] = []
        outside: list[str] = []
        at = 0
        while (start := text.find(_OPEN, at)) >= 0:
            outside.append(text[at:start])
            call, at = _read(text, start + len(_OPEN))
            calls.append(call)
        outside.append(text[at:])
        if not calls:
            return [], text
        # The line break before a tag belongs to the call's form, and so does white space around calls.
        kept = [outside[0].removesuffix("\n"), *(part.strip() for part in outside[1:])]
        return calls, "\n".join(part for part in kept if part)


_END = "}\n" + _CLOSE


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _begin(tool: ToolDefinition) -> str:
    return f'{_OPEN}\n{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '


def _call(tool: ToolDefinition) -> Format:
    return sequence(constant(_begin(tool)), json_schema(tool.parameters), constant(_END))


def _definitions(tools: Sequence[ToolDefinition]) -> Iterator[Piece]:
    """The tools as this dialect's models expect them in the system message (Hermes function calling format)."""
    yield trusted("You can call these functions. Their signatures, one JSON object a line, are:\n<tools>")
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        yield trusted("\n")
        yield untrusted(json.dumps({"type": "function", "function": function}, ensure_ascii=False))
    yield trusted(
        "\n</tools>\nTo call a function, write its name and arguments as a JSON object like this:\n"
        f'{_OPEN}\n{{"name": "FUNCTION", "arguments": {{"ARGUMENT": "VALUE"}}}}\n{_CLOSE}'
    )


def _read(text: str, start: int) -> tuple[CallText, int]:
    """The call whose tag ends at ``start``, and where what follows it begins."""
    try:
        found = {key: (begin, end) for key, begin, end in members(text, start)}
        name = json.loads(text[slice(*found["name"])])
        arguments = text[slice(*found["arguments"])] if "arguments" in found else "{}"
        if isinstance(name, str):
            end = found[""][1]
            tail = text[end:]
            closed = len(tail) - len(tail.lstrip())
            return CallText(name=name, arguments=arguments), end + (
                closed + len(_CLOSE) if tail.lstrip().startswith(_CLOSE) else 0
            )
    except (ValueError, KeyError, RecursionError):
        pass
    return _read_broken(text, start)


def _read_broken(text: str, start: int) -> tuple[CallText, int]:
    scanned = _BROKEN.match(text, start)
    end = scanned.end() if scanned else start
    closed = text.startswith(_CLOSE, end)
    end = end if closed else len(text)
    body = text[start:end].strip()
    name, arguments = _NAME.search(body), _ARGUMENTS.search(body)
    raw = body[arguments.end() :] if arguments else body
    if closed and arguments:
        raw = raw.removesuffix("}").rstrip()
    return CallText(name=_unquoted(name[1]) if name else "", arguments=raw), end + (len(_CLOSE) if closed else 0)


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
