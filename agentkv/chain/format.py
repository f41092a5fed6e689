"""Conversations as token ids that grow turn by turn and equal one rendering of the whole conversation."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from agentkv.chain.constraint import Turn, TurnShape
from agentkv.chain.dialects import Dialect, detect
from agentkv.chain.layout import Layout
from agentkv.chain.messages import Message, ToolDefinition, awaited
from agentkv.chain.probe import Boundary, ProbeReport, probe
from agentkv.chain.template import ChatTemplate, read_json
from agentkv.chain.tokenizer import Piece, Tokenizer
from agentkv.errors import TemplateError

__all__ = ("ChatFormat",)

_USER = Message(role="user", content="A")


class ChatFormat:
    """A model's tokenizer, chat template and dialect as one.

    What a model generated keeps its own token boundaries: a rendering is cut where an assistant's text
    begins and ends, as it was when the model wrote it.

    Raises:
        TemplateError: no token of the added vocabulary ends a turn.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate, dialect: Dialect, eos_ids: Iterable[int] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template.with_options(dialect.options)
        self.dialect = dialect.bind(tokenizer)
        self._mark = ""
        self._mark = self._turn_end()
        named = [self._mark, template.special_tokens.get("eos_token", "")]
        ids = [id_ for text in named if (id_ := tokenizer.token_id(text)) is not None]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([*ids, *eos_ids, *self._turn_openers()]))
        if not self.stop_ids:
            raise TemplateError("no token ends a turn of this chat template; set eos_token in tokenizer_config.json")

    @classmethod
    def load(cls, model_path: str | Path, dialect: str = "auto") -> "ChatFormat":
        """Read the files of a model folder.

        Raises:
            TemplateError: there is no usable chat template, or it speaks no known dialect.
            SetupError: there is no readable tokenizer.
        """
        template = ChatTemplate.load(model_path)
        eos = read_json(Path(model_path) / "generation_config.json").get("eos_token_id") or []
        ids = eos if isinstance(eos, list) else [eos]
        return cls(Tokenizer.load(model_path), template, detect(template, dialect), ids)

    @cached_property
    def verdict(self) -> ProbeReport:
        """Where this format's prompts only grow, and where the template rewrites them."""
        return probe(self)

    def drops_history(self, boundary: Boundary) -> bool:
        """Whether the prompt must be rendered anew at ``boundary``: the template rewrites, or ``delta`` would err."""
        return not (self.verdict.boundaries[boundary].append_only and self.verdict.delta.append_only)

    def appends(self, new: Sequence[Message | None]) -> bool:
        """Whether a chain can take ``new`` behind what it holds; if not, it must be rendered anew.

        None stands for a tool result that is not there yet.
        """
        only_results = all(message is None or message.role == "tool" for message in new)
        return not self.drops_history("tool result" if only_results else "user message")

    def close(self, ids: Sequence[int]) -> tuple[list[int], bool]:
        """What of a generation a chain keeps, and whether the token that ends the turn is in it.

        A generation is over at its first id that opens or ends a turn.
        """
        end = next((i for i, id_ in enumerate(ids) if id_ in self.stop_ids), len(ids))
        closed = end < len(ids) and ids[end] == self.tokenizer.token_id(self._mark)
        return list(ids[: end + closed]), closed

    def anchor(self, instructions: str, tools: Sequence[ToolDefinition]) -> list[int]:
        """The longest ids that every conversation of an agent begins with, whatever its user writes."""
        word = _absent([instructions, *_tool_texts(tools)])
        answer = Message(role="assistant", content="A")
        user = Message(role="user", content=word)
        short, long = (
            self._upto(self._layout(instructions, tools, messages, False), word)
            for messages in ([user], [user, answer, _USER])
        )
        same = next(
            (i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), min(len(short), len(long))
        )
        return short[:same]

    def render(
        self,
        system: str,
        tools: Sequence[ToolDefinition],
        messages: Sequence[Message],
        generation_prompt: bool = True,
    ) -> list[int]:
        """The whole conversation, ready for the next generation if ``generation_prompt``."""
        layout = self._layout(system, tools, messages, generation_prompt)
        return self._encode(layout, 0, len(layout.text))

    def delta(
        self,
        system: str,
        tools: Sequence[ToolDefinition],
        before: Sequence[Message],
        new: Sequence[Message],
        closed: bool = True,
        generation_prompt: bool = True,
    ) -> list[int]:
        """What to append to a chain that ends with the last message of ``before`` (empty: an empty chain).

        ``closed``: the chain has the token that ended the assistant's turn already. Costs what the new
        messages cost, not what the conversation does.

        Raises:
            TemplateError: the template rewrites what the chain holds already.
        """
        layout, start = self._grown(system, tools, before, new, closed, generation_prompt)
        return self._encode(layout, start, len(layout.text))

    def known(
        self,
        system: str,
        tools: Sequence[ToolDefinition],
        before: Sequence[Message],
        new: Sequence[Message | None],
        closed: bool = True,
        partial: str | None = None,
    ) -> list[int]:
        """The prefix of ``delta`` that is certain while results, the Nones, are missing.

        ``new`` is in call order; everything up to the first None counts. ``partial`` is what that result
        begins with, as far as it is there.
        """
        if None not in new:
            return self.delta(system, tools, before, [message for message in new if message], closed)
        ready = [message for message in new[: new.index(None)] if message]
        word = _absent([system, partial or "", *(m.content for m in [*before[-1:], *ready]), *_tool_texts(tools)])
        call = awaited([*before, *ready])
        missing = Message(
            role="tool",
            content=(partial or "") + word,
            call_id=call.id if call else "",
            name=call.name if call else "",
        )
        layout, start = self._grown(system, tools, before, [*ready, missing], closed, True)
        return self._upto(layout, word, start)

    def begun(
        self,
        system: str,
        tools: Sequence[ToolDefinition],
        before: Sequence[Message],
        new: Sequence[Message],
        closed: bool = True,
    ) -> list[int]:
        """The prefix of ``delta`` that is certain while the last of ``new``, a user's, is there only as it begins."""
        last = new[-1].content
        word = _absent([system, *(m.content for m in [*before[-1:], *new]), *_tool_texts(tools)])
        begun = Message(role="user", content=last + word)
        layout, start = self._grown(system, tools, before, [*new[:-1], begun], closed, True)
        return self._upto(layout, word, start)

    def generation(self, message: Message) -> list[int]:
        """The ids that a model generates for an assistant message, the end of the turn included."""
        end = self.tokenizer.token_id(self._mark)
        return self._behind(self.dialect.write(message)) + ([] if end is None else [end])

    def parse(self, ids: Sequence[int], shape: TurnShape, next_call_number: int) -> Turn:
        """Read one generation, up to the first id that ends a turn."""
        end = next((i for i, id_ in enumerate(ids) if id_ in self.stop_ids), len(ids))
        return self.dialect.parse(self.tokenizer.decode(ids[:end]), shape, next_call_number)

    def _layout(
        self, system: str, tools: Sequence[ToolDefinition], messages: Sequence[Message], generation_prompt: bool
    ) -> Layout:
        given = self.dialect.input(system, tools, messages)
        return self.template.layout(given.messages, given.tools, generation_prompt)

    def _grown(
        self,
        system: str,
        tools: Sequence[ToolDefinition],
        before: Sequence[Message],
        new: Sequence[Message],
        closed: bool,
        generation_prompt: bool,
    ) -> tuple[Layout, int]:
        """A short conversation that ends like ``before + new``, and where in it the chain ends."""
        if not before:
            return self._layout(system, tools, new, generation_prompt), 0
        if self._tail_is_headless:
            system, tools = "", ()
        word = _absent([system, *(m.content for m in new), *_tool_texts(tools)])
        held = self._skeleton(before, word)
        layout = self._layout(system, tools, [*held, *new], generation_prompt)
        if before[-1].role == "assistant":
            return layout, self._turn_border(layout.text, word, closed)
        prefix = self._layout(system, tools, held, False).text
        if not layout.text.startswith(prefix):
            raise TemplateError(f"the chat template rewrites a {before[-1].role} message when another follows it")
        return layout, len(prefix)

    def _skeleton(self, before: Sequence[Message], word: str) -> list[Message]:
        last = max((i for i, message in enumerate(before) if message.role == "assistant"), default=None)
        if last is None:
            return list(before)
        return [_USER, self.dialect.skeleton(before[last], word), *before[last + 1 :]]

    def _turn_border(self, text: str, word: str, closed: bool) -> int:
        """Where the turn that holds ``word`` ends: behind the token that ends it if ``closed``, else before."""
        end = text.index(word) + len(word)
        mark = text.find(self._mark, end) if self._mark else -1
        if mark < 0:
            return end
        if closed:
            return mark + len(self._mark)
        return end if not text[end:mark].strip() else mark

    @cached_property
    def _tail_is_headless(self) -> bool:
        """Whether what follows an assistant's turn is the same without system message and tools."""
        tool = ToolDefinition(name="tool", description="A", parameters={"type": "object", "properties": {}})
        word = "Aword"
        turns = [_USER, Message(role="assistant", content=word), _USER]
        try:
            tails = {
                self._layout(system, tools, turns, True).text.partition(word)[2]
                for system, tools in (("", ()), ("A", ()), ("A", (tool,)))
            }
        except TemplateError:
            return False
        return len(tails) == 1

    def _turn_end(self) -> str:
        """The text of the added token behind an assistant's text; empty if there is none."""
        word = "Aword"
        text = self._layout("", (), [_USER, Message(role="assistant", content=word), _USER], False).text
        behind = text.partition(word)[2].lstrip()
        return max((token for token in self.tokenizer.added if behind.startswith(token)), key=len, default="")

    def _turn_openers(self) -> list[int]:
        """The ids of the added tokens that stand between an assistant's text and the next message's."""
        words = ("Aword", "Bword")
        user = Message(role="user", content=words[1])
        text = self._layout("", (), [_USER, Message(role="assistant", content=words[0]), user], False).text
        between = text.partition(words[0])[2].partition(words[1])[0]
        return [id_ for token, id_ in self.tokenizer.added.items() if token.strip() and token in between]

    def _encode(self, layout: Layout, start: int, end: int) -> list[int]:
        ids: list[int] = []
        for number, pieces in enumerate(layout.stretches(start, end)):
            ids += self._behind(pieces) if number or start else self.tokenizer.encode(pieces)
        return ids

    def _upto(self, layout: Layout, word: str, start: int = 0) -> list[int]:
        """The ids from ``start`` to ``word`` that stay, whatever stands there instead of it."""
        end = layout.text.find(word, start)
        stretches = layout.stretches(start, end) if end >= 0 else []
        if not stretches:
            return []
        cut = end - sum(len(piece.text) for piece in stretches[-1])
        if cut == 0:
            return self.tokenizer.stable(stretches[-1])
        settled = self._encode(layout, start, cut)
        context = self._context
        return settled + self.tokenizer.stable([*context, *stretches[-1]])[len(context) :]

    def _behind(self, pieces: Sequence[Piece]) -> list[int]:
        """Encode text that does not begin the prompt: some tokenizers put a space before what does."""
        context = self._context
        return self.tokenizer.encode([*context, *pieces])[len(context) :]

    @property
    def _context(self) -> list[Piece]:
        return [Piece(self._mark, True)] if self._mark else []


def _absent(texts: Iterable[str]) -> str:
    """A word that none of ``texts`` holds."""
    found, number = list(texts), 0
    while any((word := f"Aword{number}") in text for text in found):
        number += 1
    return word


def _tool_texts(tools: Sequence[ToolDefinition]) -> list[str]:
    return [f"{tool.name} {tool.description} {tool.parameters}" for tool in tools]
