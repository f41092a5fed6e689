"""The dialect of Mistral's v3 tokenizers: calls as one JSON list behind the token ``[TOOL_CALLS]``."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from typing_extensions import override

from agentkv.chain.constraint import Format, TurnShape, any_text, constant, json_schema, one_of, sequence, up_to
from agentkv.chain.dialects.base import CallText, Dialect, TemplateInput, arguments_text, members, trusted, untrusted
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import message_input
from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.tools.call import ToolCall

__all__ = ("MistralDialect", "mistral_id")

_MARK = "[TOOL_CALLS]"
_ID = re.compile(r"call_(\d{1,5})")


def mistral_id(call_id: str) -> str:
    """The nine alphanumerics that Mistral's templates ask for, made from a call's id alone."""
    if numbered := _ID.fullmatch(call_id):
        return f"call{int(numbered[1]):05}"
    if re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


@frozen
class MistralDialect(Dialect):
    """``[TOOL_CALLS][{"name": ..., "arguments": ..., "id": ...}, ...]``; no text beside calls.

    ``mark_id`` is the id of ``[TOOL_CALLS]``; None where the tokenizer has no such token.
    """

    mark_id: int | None = None

    @property
    @override
    def name(self) -> str:
        return "mistral"

    @property
    @override
    def call_marks(self) -> tuple[str, ...]:
        return (_MARK,)

    @override
    def input(self, system: str, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> TemplateInput:
        renamed = [evolve(m, call_id=mistral_id(m.call_id)) if m.role == "tool" else m for m in messages]
        return super().input(system, tools, renamed)

    @override
    def assistant(self, message: Message) -> Mapping[str, Any]:
        if not message.calls:
            return super().assistant(message)
        calls = tuple(evolve(call, id=mistral_id(call.id)) for call in message.calls)
        return message_input(evolve(message, calls=calls))

    @override
    def bind(self, tokenizer: Tokenizer) -> "MistralDialect":
        return evolve(self, mark_id=tokenizer.token_id(_MARK))

    @override
    def skeleton(self, message: Message, text: str) -> Message:
        if not message.calls:
            return super().skeleton(message, text)
        # Results without a call before them are refused.
        return Message(role="assistant", content="", calls=(ToolCall(message.calls[-1].id, text, "{}"),))

    @override
    def write(self, message: Message) -> list[Piece]:
        if not message.calls:
            return [untrusted(message.content)] if message.content else []
        pieces: list[Piece] = []
        for call in message.calls:
            pieces += [
                trusted(', {"name": ' if pieces else _MARK + '[{"name": '),
                untrusted(json.dumps(call.name, ensure_ascii=False)),
                trusted(', "arguments": '),
                untrusted(arguments_text(call)),
                trusted(f', "id": "{mistral_id(call.id)}"}}'),
            ]
        return [*pieces, trusted("]")]

    @override
    def calls_format(self, shape: TurnShape, names: Sequence[str] | None, first: int) -> Format:
        if names is None:
            numbers = range(first, first + shape.max_calls)
            calls = up_to([one_of(_call(tool, number) for tool in shape.tools) for number in numbers], ", ")
        else:
            exact = [_call(shape.tool(name), number) for number, name in enumerate(names, first)]
            calls = sequence(*[part for call in exact for part in (constant(", "), call)][1:])
        # By its id: the mark's text spelt out in other tokens is no call to the model, and vLLM checks a
        # structural tag without the vocabulary that a token's text would be looked up in.
        mark = constant(_MARK) if self.mark_id is None else {"type": "token", "token": self.mark_id}
        return sequence(mark, constant("["), calls, constant("]"))

    @override
    def mixed_format(self, shape: TurnShape, first: int) -> Format:
        return one_of([self.calls_format(shape, None, first), any_text(self.call_marks)])

    @override
    def find_calls(self, text: str) -> tuple[list[CallText], str]:
        before, mark, after = text.partition(_MARK)
        if not mark:
            return [], text
        calls: list[CallText] = []
        at = len(after) - len(after.lstrip(" ["))
        while at < len(after) and after[at] != "]":
            try:
                found = {key: (begin, end) for key, begin, end in members(after, at)}
                name = json.loads(after[slice(*found["name"])])
            except (ValueError, KeyError, RecursionError):
                calls.append(CallText(name="", arguments=after[at:]))
                break
            arguments = after[slice(*found["arguments"])] if "arguments" in found else "{}"
            calls.append(CallText(name=str(name), arguments=arguments))
            at = found[""][1]
            at += len(after[at:]) - len(after[at:].lstrip(", "))
        return calls, before.rstrip()


def _call(tool: ToolDefinition, number: int) -> Format:
    begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
    end = f', "id": "{mistral_id(f"call_{number:04}")}"}}'
    return sequence(constant(begin), json_schema(tool.parameters), constant(end))
