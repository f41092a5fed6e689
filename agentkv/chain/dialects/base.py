"""What a family of models writes where its chat template leaves it open."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any

from attrs import frozen

from agentkv.chain.constraint import (
    LABEL_LINE,
    Format,
    Then,
    Turn,
    TurnShape,
    any_text,
    constant,
    json_schema,
    one_of,
    sequence,
    structural_tag,
)
from agentkv.chain.layout import Leaf
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import message_input, tool_input
from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.tools.call import ToolCall

__all__ = ("CallText", "Dialect", "TemplateInput", "arguments_text", "members", "trusted", "untrusted")

_DECODER = JSONDecoder()
_SPACE = " \t\r\n"


@frozen(kw_only=True)
class TemplateInput:
    """What a template is given."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[object, ...]


@frozen(kw_only=True)
class CallText:
    """A call found in generated text; ``arguments`` as written there."""

    name: str
    arguments: str


@frozen
class Dialect(ABC):
    """How tool definitions, calls and results are written, read and constrained.

    ``options`` are variables that the template is given. ``native_tools``: the template writes tool
    definitions and results itself.
    """

    native_tools: bool = True
    options: Mapping[str, Any] = {}

    @property
    @abstractmethod
    def name(self) -> str: ...

    def input(self, system: str, tools: Sequence[ToolDefinition], messages: Sequence[Message]) -> TemplateInput:
        """The conversation in the template's own form; ``system`` is left out when empty."""
        head = [{"role": "system", "content": Leaf.untrusted(system)}] if system else []
        written = [self.assistant(m) if m.role == "assistant" else message_input(m) for m in messages]
        return TemplateInput(messages=(*head, *written), tools=tuple(tool_input(tool) for tool in tools))

    def assistant(self, message: Message) -> Mapping[str, Any]:
        """An assistant message with its calls in the template's own form."""
        return {"role": "assistant", "content": Leaf(tuple(self.write(message)), "around")}

    def bind(self, tokenizer: Tokenizer) -> "Dialect":
        """The dialect for a model with this tokenizer."""
        return self

    def skeleton(self, message: Message, text: str) -> Message:
        """An assistant message whose rendering goes on like that of ``message``; the last text in it is ``text``."""
        return Message(role="assistant", content=text)

    @abstractmethod
    def write(self, message: Message) -> list[Piece]:
        """What the model generates for an assistant message, up to the token that ends the turn."""

    @abstractmethod
    def calls_format(self, shape: TurnShape, names: Sequence[str] | None, first: int) -> Format:
        """The format of exactly the calls ``names``, or of 1 to ``shape.max_calls`` calls of any tool."""

    @abstractmethod
    def mixed_format(self, shape: TurnShape, first: int) -> Format:
        """The format of free text in which the model may call tools."""

    @property
    @abstractmethod
    def call_marks(self) -> tuple[str, ...]:
        """Texts that begin a call: an answer must not hold them."""

    @abstractmethod
    def find_calls(self, text: str) -> tuple[list[CallText], str]:
        """The calls in generated text, and the text without them."""

    def constraint(self, shape: TurnShape, next_call_number: int = 1) -> str | None:
        """The structural tag of ``shape`` in JSON, or None where anything may be generated."""
        if not shape.tools and not shape.labels and shape.answer is None:
            return None
        if not shape.labels:
            return structural_tag(self._part("any", shape, next_call_number))
        return structural_tag(
            one_of(
                sequence(constant(f"{LABEL_LINE}{label.name}\n"), self._part(label.then, shape, next_call_number))
                for label in shape.labels
            )
        )

    def _part(self, then: Then, shape: TurnShape, first: int) -> Format:
        answer = any_text(self.call_marks) if shape.answer is None else json_schema(shape.answer)
        if then == "answer" or shape.choice == "none" or not shape.tools:
            return answer
        if isinstance(shape.choice, tuple):
            return self.calls_format(shape, shape.choice, first) if shape.choice else answer
        if then == "calls" or shape.choice == "required":
            return self.calls_format(shape, None, first)
        if shape.answer is not None:
            return one_of([self.calls_format(shape, None, first), answer])
        return self.mixed_format(shape, first)

    def parse(self, text: str, shape: TurnShape, next_call_number: int) -> Turn:
        """Read the text of one generation, without the token that ended it.

        Calls get the ids ``call_0001``, ... from ``next_call_number`` on. Arguments that are no valid JSON
        are kept as they are, so that the error goes back to the model.
        """
        label, rest, problem = _label(text, shape)
        found: list[CallText] = []
        if shape.tools and shape.choice != "none":
            found, rest = self.find_calls(rest)
        calls = tuple(
            ToolCall(f"call_{number:04}", call.name, call.arguments)
            for number, call in enumerate(found, next_call_number)
        )
        problem = problem or _problem(label, found, shape)
        return Turn(label=label, calls=calls, text=rest, problem=problem)


def _label(text: str, shape: TurnShape) -> tuple[str | None, str, str | None]:
    if not shape.labels:
        return None, text, None
    line, _, rest = text.partition("\n")
    names = [label.name for label in shape.labels]
    if line.startswith(LABEL_LINE) and line[len(LABEL_LINE) :] in names:
        return line[len(LABEL_LINE) :], rest, None
    return None, text, f"The first line must be {LABEL_LINE!r} and one of {', '.join(names)}; it was {line[:80]!r}."


def _problem(label: str | None, found: Sequence[CallText], shape: TurnShape) -> str | None:
    then = next((entry.then for entry in shape.labels if entry.name == label), "any")
    names = tuple(call.name for call in found)
    exact = isinstance(shape.choice, tuple) and then != "answer"
    if exact and names != shape.choice:
        return f"The calls must be exactly {', '.join(shape.choice)}; they were {', '.join(names) or 'none'}."
    if not exact and len(found) > shape.max_calls:
        return f"At most {shape.max_calls} calls are allowed; there were {len(found)}."
    if not found and (then == "calls" or (shape.choice == "required" and then != "answer")):
        return "A tool call is required; there was none."
    if found and then == "answer":
        return f"Label {label!r} is followed by an answer, not by calls."
    return None


def trusted(text: str) -> Piece:
    return Piece(text, True)


def untrusted(text: str) -> Piece:
    return Piece(text, False)


def arguments_text(call: ToolCall) -> str:
    """A call's arguments with the spacing that templates give JSON; text that is no JSON as it is."""
    try:
        return json.dumps(json.loads(call.arguments), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return call.arguments


def members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """The members of the JSON object at ``start``: key, and where its value begins and ends.

    The last yields an empty key, and where the object begins and ends.

    Raises:
        ValueError: there is no complete JSON object.
    """
    at = _skip(text, start)
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("no colon")
        begin = _skip(text, at + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield key, begin, end
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
    if text[at : at + 1] != "}":
        raise ValueError("no end")
    yield "", start, at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
