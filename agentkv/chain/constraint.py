"""What a generation may look like, as a structural tag that xgrammar compiles.

Only formats of xgrammar 0.2.1 are used, the oldest that vLLM 0.26 admits. ``max_whitespace_cnt`` is newer
(0.2.4; vLLM 0.32 has it): older versions skip the key, so white space between JSON tokens is unbounded there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from attrs import field, frozen, validators

from agentkv.chain.messages import ToolDefinition
from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.errors import GraphError
from agentkv.tools.call import ToolCall

__all__ = (
    "LABEL_LINE",
    "Format",
    "LabelShape",
    "Then",
    "Turn",
    "TurnShape",
    "any_text",
    "check_label",
    "constant",
    "json_schema",
    "one_of",
    "sequence",
    "structural_tag",
    "up_to",
)

Then = Literal["calls", "answer", "any"]
Format = dict[str, Any]

LABEL_LINE = "Next: "


@frozen
class LabelShape:
    """A label that the model may choose, and what must follow it."""

    name: str
    then: Then = field(default="any", validator=validators.in_(("calls", "answer", "any")))


@frozen(kw_only=True)
class TurnShape:
    """What one generation may hold.

    ``choice``: ``"auto"`` lets the model call or answer, ``"required"`` makes it call, ``"none"`` makes it
    answer; a tuple of names means exactly these calls in this order. ``labels``: the first line is then
    ``Next: LABEL``. ``answer`` is the JSON schema of the answer, or None for free text.
    """

    tools: tuple[ToolDefinition, ...] = ()
    choice: Literal["auto", "required", "none"] | tuple[str, ...] = "auto"
    max_calls: int = field(default=8, validator=validators.ge(1))
    labels: tuple[LabelShape, ...] = ()
    answer: dict[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        known = {tool.name for tool in self.tools}
        if isinstance(self.choice, tuple) and (unknown := [name for name in self.choice if name not in known]):
            raise GraphError(f"tool choice names {unknown[0]!r}, which is none of the tools; add it to them")
        if self.choice == "required" and not self.tools:
            raise GraphError("a tool call is required but there are no tools; add one or drop the requirement")

    def tool(self, name: str) -> ToolDefinition:
        return next(tool for tool in self.tools if tool.name == name)


@frozen(kw_only=True)
class Turn:
    """A generation as read. ``text`` is what stands outside label and calls.

    ``problem`` says how the generation breaks its shape, in words that the model can be told; None if it
    does not.
    """

    label: str | None = None
    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    problem: str | None = None

    @property
    def content(self) -> str:
        """Label line and text: the content of the assistant message that this turn is."""
        if self.label is None:
            return self.text
        return LABEL_LINE + self.label + ("\n" + self.text if self.text else "")


def check_label(name: str, tokenizer: Tokenizer) -> None:
    """Refuse a label that a model cannot write on one line.

    Raises:
        GraphError: the label is empty, holds a control character or a line break, begins or ends with white
            space, or holds the text of a control token.
    """
    if not name or name != name.strip() or not name.isprintable():
        raise GraphError(f"label {name!r} cannot be written on one line; use printable text")
    found = [token for token in tokenizer.added if token in name]
    if found or any(id_ in tokenizer.added.values() for id_ in tokenizer.encode([Piece(name, True)])):
        raise GraphError(f"label {name!r} holds a control token of the model ({', '.join(found)}); rename it")


def constant(text: str) -> Format:
    return {"type": "const_string", "value": text}


def json_schema(schema: Mapping[str, Any]) -> Format:
    # A small model that may write white space for ever does.
    return {"type": "json_schema", "json_schema": dict(schema), "max_whitespace_cnt": 1}


def any_text(without: Sequence[str] = ()) -> Format:
    return {"type": "any_text", "excludes": list(without)}


def sequence(*elements: Format) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def one_of(elements: Iterable[Format]) -> Format:
    found = list(elements)
    return found[0] if len(found) == 1 else {"type": "or", "elements": found}


def up_to(elements: Sequence[Format], separator: str) -> Format:
    """The first, then as many of the following as the model likes, in order."""
    result = elements[-1]
    for element in reversed(elements[:-1]):
        result = sequence(element, {"type": "optional", "content": sequence(constant(separator), result)})
    return result


def structural_tag(form: Format) -> str:
    return json.dumps({"type": "structural_tag", "format": form}, ensure_ascii=False)
