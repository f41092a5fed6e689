"""Where a chat template is append-only, found by rendering conversations and comparing token ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from agentkv.chain.messages import Message, ToolDefinition
from agentkv.errors import TemplateError
from agentkv.tools.call import ToolCall

if TYPE_CHECKING:
    from agentkv.chain.format import ChatFormat

__all__ = ("Boundary", "ProbeReport", "Verdict", "probe")

Boundary = Literal["tool result", "user message"]

_AROUND = 12
_SYSTEM = "You answer questions."
_TOOLS = (
    ToolDefinition(
        name="look_up",
        description="Look something up.",
        parameters={"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    ),
)


@frozen(kw_only=True)
class Verdict:
    """Whether a prompt only grows.

    If not, ``held`` and ``fresh`` show, around the first difference, the text that the model has seen and
    what a new rendering says instead; ``message`` is the index of the message where that is.
    """

    append_only: bool
    reason: str = ""
    held: str = ""
    fresh: str = ""
    message: int | None = None


@frozen(kw_only=True)
class ProbeReport:
    """A verdict per boundary. ``delta`` says whether appending equals rendering anew where prompts only grow."""

    boundaries: Mapping[Boundary, Verdict]
    delta: Verdict


def probe(chat: "ChatFormat") -> ProbeReport:
    """Compare, at each boundary of probe conversations, what a chain holds with a rendering from the start.

    A chain holds the prompt of a generation and the generated ids. The conversations have one and two calls,
    with and without reasoning in ``<think>`` tags, with and without a system message.
    """
    boundaries: dict[Boundary, Verdict] = {}
    delta = Verdict(append_only=True)
    for system in (_SYSTEM, ""):
        for conversation in _conversations():
            for boundary, at, until in _boundaries(conversation):
                grown, exact = _check(chat, system, conversation, at, until)
                if boundary not in boundaries or boundaries[boundary].append_only:
                    boundaries[boundary] = grown
                if delta.append_only:
                    delta = exact
    return ProbeReport(boundaries=boundaries, delta=delta)


def _check(
    chat: "ChatFormat", system: str, conversation: Sequence[Message], at: int, until: int
) -> tuple[Verdict, Verdict]:
    """Verdicts on growth and on ``delta`` where the messages [at + 1, until) follow an assistant's turn."""
    try:
        held = chat.render(system, _TOOLS, conversation[:at]) + chat.generation(conversation[at])
        fresh = chat.render(system, _TOOLS, conversation[:until])
        grown = _compare(chat, held, fresh[: len(held)], conversation, system)
        if not grown.append_only:
            return grown, Verdict(append_only=True)
        appended = chat.delta(system, _TOOLS, conversation[: at + 1], conversation[at + 1 : until])
        return grown, _compare(chat, held + appended, fresh, conversation, system)
    except TemplateError as error:
        return Verdict(append_only=False, reason=str(error)), Verdict(append_only=True)


def _compare(
    chat: "ChatFormat", held: Sequence[int], fresh: Sequence[int], conversation: Sequence[Message], system: str
) -> Verdict:
    if held == fresh:
        return Verdict(append_only=True)
    pairs = zip(held, fresh, strict=False)
    at = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(held), len(fresh)))
    lengths = (len(chat.render(system, _TOOLS, conversation[: i + 1], False)) for i in range(len(conversation)))
    message = next((i for i, length in enumerate(lengths) if length > at), len(conversation) - 1)
    window = slice(max(at - _AROUND, 0), at + _AROUND)
    return Verdict(
        append_only=False,
        reason=f"rendered anew, the prompt differs from token {at} on, at the {conversation[message].role} message",
        held=chat.tokenizer.decode(held[window]),
        fresh=chat.tokenizer.decode(fresh[window]),
        message=message,
    )


def _boundaries(conversation: Sequence[Message]) -> Iterator[tuple[Boundary, int, int]]:
    """Each assistant turn that others follow: the kind, its index, and where the next assistant turn is."""
    turns = [i for i, message in enumerate(conversation) if message.role == "assistant"]
    for at, until in zip(turns, [*turns[1:], len(conversation)], strict=True):
        yield ("tool result" if conversation[at + 1].role == "tool" else "user message"), at, until


def _conversations() -> Iterator[list[Message]]:
    for thought in ("", "<think>\nA plan.\n</think>\n\n"):
        for count in (1, 2):
            yield [
                Message(role="user", content="Where is A?"),
                *_round(thought, 1, count),
                *_round(thought, 1 + count, 1),
                Message(role="assistant", content=f"{thought}A is here."),
                Message(role="user", content="And B?"),
                Message(role="assistant", content="B is there."),
                Message(role="user", content="Thanks."),
            ]


def _round(thought: str, first: int, count: int) -> list[Message]:
    calls = tuple(ToolCall(f"call_{n:04}", "look_up", f'{{"key":"K{n}"}}') for n in range(first, first + count))
    results = [Message(role="tool", content=f"Value {call.id}", call_id=call.id, name=call.name) for call in calls]
    return [Message(role="assistant", content=thought.removesuffix("\n"), calls=calls), *results]
