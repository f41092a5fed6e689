"""Chat templates: Jinja sources that turn messages into a prompt."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from attrs import evolve, field, frozen
from typing_extensions import override

from agentkv.chain.align import align
from agentkv.chain.layout import Cut, Layout, Leaf, plain
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.tokenizer import Piece
from agentkv.errors import TemplateError

__all__ = ("CLOCK", "ChatTemplate", "call_input", "message_input", "read_json", "tool_input")

# What a template gets that asks for today's date: a prompt that holds the clock has another prefix every day.
# The value is the default that Llama 3.1's template states for itself.
CLOCK = datetime(2024, 7, 26)  # noqa: DTZ001 - a name for a day, not a moment

_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_MEMBERS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class _Generation(jinja2.ext.Extension):
    """``{% generation %}``, which marks assistant text for training; here it only shows what it holds."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja asks for

    @override
    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@frozen
class ChatTemplate:
    """A template and the texts of the special tokens that it may name (``bos_token``, ``eos_token``, ...).

    Rendered in the environment that templates on the Hugging Face Hub expect, sandboxed. ``options`` are
    further variables. ``toolless`` is the template for conversations without tools, where that is another.
    """

    source: str
    special_tokens: Mapping[str, str] = field(factory=dict)
    options: Mapping[str, Any] = field(factory=dict)
    toolless: "ChatTemplate | None" = None
    _compiled: jinja2.Template = field(init=False, repr=False, eq=False)

    @_compiled.default
    def _compile(self) -> jinja2.Template:
        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"the chat template does not parse: {error.message} (line {error.lineno})") from error

    @classmethod
    def load(cls, model_path: str | Path) -> "ChatTemplate":
        """Read ``chat_template.jinja`` or ``tokenizer_config.json`` of a model folder.

        Of several named templates ``tool_use`` is for conversations with tools, ``default`` for the others.

        Raises:
            TemplateError: there is no template, or it does not parse.
        """
        folder = Path(model_path)
        config = read_json(folder / "tokenizer_config.json")
        tokens = {name: text for name in _TOKENS if (text := _token_text(config.get(name)))}
        file = folder / "chat_template.jinja"
        if file.is_file():
            return cls(file.read_text(encoding="utf-8"), tokens)
        found = config.get("chat_template")
        toolless = None
        if isinstance(found, list):
            named = {entry["name"]: entry["template"] for entry in found}
            found = named.get("tool_use", named.get("default"))
            toolless = cls(named["default"], tokens) if {"tool_use", "default"} <= named.keys() else None
        if not isinstance(found, str):
            raise TemplateError(
                f"no chat template in {str(folder)!r}; add a chat_template.jinja or use an instruction-tuned model"
            )
        return cls(found, tokens, toolless=toolless)

    def with_options(self, options: Mapping[str, Any]) -> "ChatTemplate":
        """This template with more variables set."""
        toolless = self.toolless and self.toolless.with_options(options)
        return evolve(self, options={**self.options, **options}, toolless=toolless)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = (), generation_prompt: bool = False
    ) -> list[Piece]:
        """The prompt for ``messages`` as the template itself writes them, calls included.

        Every text of the messages and tools is untrusted; the template's own text is trusted.

        Raises:
            TemplateError: the template rejects the messages; has the template's own words.
        """
        written = [message_input(message) for message in messages]
        return self.layout(written, [tool_input(tool) for tool in tools], generation_prompt).pieces()

    def layout(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[object] = (), generation_prompt: bool = False
    ) -> Layout:
        """``render`` for messages in the template's own form, in which untrusted texts are leaves."""
        if not tools and self.toolless:
            return self.toolless.layout(messages, (), generation_prompt)
        value = {"messages": list(messages), "tools": list(tools) or None}
        return align(self.source, value, lambda filled: self._run(filled, generation_prompt))

    def text(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[object] = (), generation_prompt: bool = False
    ) -> str:
        """The text of ``layout`` alone, at half its cost."""
        if not tools and self.toolless:
            return self.toolless.text(messages, (), generation_prompt)
        value = {"messages": list(messages), "tools": list(tools) or None}
        return self._run(plain(value), generation_prompt)

    def _run(self, value: Any, generation_prompt: bool) -> str:
        given = {**self.special_tokens, **self.options, **value, "add_generation_prompt": generation_prompt}
        try:
            return self._compiled.render(given)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template rejects the messages: {error.message}") from error
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise TemplateError(f"the chat template fails on the messages: {error}") from error


def message_input(message: Message) -> dict[str, Any]:
    """A message as templates expect it, its texts as untrusted leaves."""
    cut: Cut = "before" if message.role == "assistant" else "none"
    written: dict[str, Any] = {"role": message.role, "content": Leaf.untrusted(message.content, cut)}
    if message.calls:
        written["tool_calls"] = [call_input(call.id, call.name, call.arguments) for call in message.calls]
    if message.role == "tool":
        written |= {"tool_call_id": _id(message.call_id), "name": Leaf.untrusted(message.name)}
    return written


def call_input(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call as templates expect it; arguments that are no JSON object stay text."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = arguments
    function = {"name": Leaf.untrusted(name), "arguments": _data(parsed)}
    return {"id": _id(call_id), "type": "function", "function": function}


def tool_input(tool: ToolDefinition) -> dict[str, Any]:
    """A tool definition as templates expect it, its texts as untrusted leaves."""
    function = {
        "name": Leaf.untrusted(tool.name),
        "description": Leaf.untrusted(tool.description),
        "parameters": _schema(tool.parameters),
    }
    return {"type": "function", "function": function}


def _id(text: str) -> object:
    # Templates measure ids; one of word characters holds nothing to guard against.
    return text if re.fullmatch(r"[\w-]*", text, re.ASCII) else Leaf.untrusted(text)


def _data(value: object) -> object:
    """Wrap every text of a JSON value, keys included."""
    if isinstance(value, str):
        return Leaf.untrusted(value)
    if isinstance(value, list):
        return [_data(item) for item in value]
    if isinstance(value, Mapping):
        return {Leaf.untrusted(key): _data(item) for key, item in value.items()}
    return value


def _schema(value: object) -> object:
    """Wrap the texts of a JSON schema; its own keywords stay bare, since templates look them up."""
    if isinstance(value, str):
        return Leaf.untrusted(value)
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if isinstance(value, Mapping):
        return {key if key.isidentifier() else Leaf.untrusted(key): _keyword(key, item) for key, item in value.items()}
    return value


def _keyword(key: str, value: object) -> object:
    if key == "type" and isinstance(value, str) and value.isidentifier():
        return value
    return _members(value) if key in _MEMBERS else _schema(value)


def _members(value: object) -> object:
    """A mapping from names that someone chose to schemas."""
    if isinstance(value, Mapping):
        return {Leaf.untrusted(name): _schema(item) for name, item in value.items()}
    return _schema(value)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no file.

    Raises:
        TemplateError: the file holds no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TemplateError(f"{str(path)!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise TemplateError(f"{str(path)!r} does not hold a JSON object")
    return found


def _token_text(value: object) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = CLOCK.strftime
    return environment


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which no model has been trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
