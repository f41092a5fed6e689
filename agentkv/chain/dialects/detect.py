"""Which dialect a chat template speaks, found by rendering probes."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from agentkv.chain.dialects.base import Dialect
from agentkv.chain.dialects.hermes import HermesDialect
from agentkv.chain.dialects.llama3 import Llama3Dialect
from agentkv.chain.dialects.mistral import MistralDialect
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import ChatTemplate, message_input, tool_input
from agentkv.errors import TemplateError
from agentkv.tools.call import ToolCall

__all__ = ("DIALECTS", "detect")

DIALECTS: dict[str, type[Dialect]] = {
    "hermes": HermesDialect,
    "llama3": Llama3Dialect,
    "mistral": MistralDialect,
}

_TOOL = ToolDefinition(name="probe_tool", description="A probe.", parameters={"type": "object", "properties": {}})
_CALL = {"type": "function", "id": "probe0001", "function": {"name": "probe_tool", "arguments": {"probe": "value"}}}
# Llama 3.x puts tools into the first user message unless told otherwise, where no two runs share them.
_OPTIONS = {"tools_in_user_message": False}


def detect(template: ChatTemplate, name: str = "auto") -> Dialect:
    """The dialect of ``template``, or the one called ``name`` set up for it.

    Raises:
        TemplateError: the name is unknown, or the template writes calls in a form of its own.
    """
    if name not in ("auto", *DIALECTS):
        raise TemplateError(f"unknown dialect {name!r}; use one of auto, {', '.join(DIALECTS)}")
    native = _shows(template)
    chosen = DIALECTS[name] if name != "auto" else _by_calls(template, native)
    if name == "hermes" and native:
        native = _speaks_hermes(template)
    options: dict[str, Any] = {}
    if native and "tools_in_user_message" in template.source:
        options = _OPTIONS
    if not native and chosen is not HermesDialect:
        raise TemplateError(f"dialect {name!r} needs a chat template that writes tool definitions; use 'hermes'")
    found = chosen(native_tools=native, options=options)
    if isinstance(found, HermesDialect):
        return evolve(found, native_calls=_writes_alike(template, found))
    return found


def _writes_alike(template: ChatTemplate, dialect: HermesDialect) -> bool:
    """Whether the template writes calls in the very words of the dialect."""
    call = ToolCall("call_0001", "probe_tool", '{"probe":"value"}')
    for content in ("", "A word."):
        message = Message(role="assistant", content=content, calls=(call, call))
        native, ours = (
            _render(template, [_user(), written, _result()], tools=True)
            for written in (message_input(message), dialect.assistant(message))
        )
        if native is None or native != ours:
            return False
    return True


def _by_calls(template: ChatTemplate, native: bool) -> type[Dialect]:
    written = _render(template, [_user(), {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _result()])
    if written is None or "probe_tool" not in written:
        if not native:
            return HermesDialect
        # The definitions tell the model which form to use where the template writes no calls itself.
        written = _render(template, [_user()], tools=True) or ""
    if "<tool_call>" in written:
        return HermesDialect
    if "[TOOL_CALLS][" in written or "[TOOL_CALLS] [" in written:
        return MistralDialect
    if '"parameters": {"probe"' in written or 'Respond in the format {"name": function name, "parameters"' in written:
        return Llama3Dialect
    raise TemplateError(
        "the chat template writes tool calls in a form that is not supported; pass dialect='hermes', or use a model "
        "that calls tools as Qwen, Hermes, Llama 3 or Mistral (tokenizer v3) do"
    )


def _speaks_hermes(template: ChatTemplate) -> bool:
    """Whether the template's own tool definitions ask for this dialect's calls, not for another's."""
    try:
        return _by_calls(template, True) is HermesDialect
    except TemplateError:
        return False


def _shows(template: ChatTemplate) -> bool:
    written = _render(template, [_user()], tools=True)
    return written is not None and "probe_tool" in written


def _render(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], tools: bool = False) -> str | None:
    try:
        return template.text(messages, [tool_input(_TOOL)] if tools else [])
    except TemplateError:
        return None


def _user() -> dict[str, Any]:
    return {"role": "user", "content": "A probe."}


def _result() -> dict[str, Any]:
    return {"role": "tool", "content": "value", "tool_call_id": "probe0001", "name": "probe_tool"}
