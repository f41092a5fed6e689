"""What there is of tool results that are not there yet: the text of streams so far, and guesses."""

from collections.abc import Mapping
from typing import Any

from attrs import Factory, define, evolve

from agentkv.errors import ToolError
from agentkv.follow import Memo, PredictedResult
from agentkv.graph.path import Path
from agentkv.raised import guarded
from agentkv.runtime.branching import inside
from agentkv.runtime.program import Program
from agentkv.runtime.rendering import tips
from agentkv.runtime.state import Slot, State, Tip
from agentkv.tools import Outcome, Tool, ToolCall, clean_text

__all__ = ("PartialResults", "guess")

# A stream is looked at again when it has grown by about a block, or by this share where it is long: each look
# tokenises all of it. Where a look brought nothing, as behind what a result is cut to, it is left alone for twice as
# long.
CHARACTERS = 3
SHARE = 0.02


@define
class _Result:
    """``size`` characters came in ``pieces``; tips are made of them anew when there are ``next_look``."""

    guess: PredictedResult | None = None
    pieces: list[str] = Factory(list)
    size: int = 0
    next_look: float = 0
    patience: float = 1

    @property
    def text(self) -> str:
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]

    def looked(self, least: int, *, grown: bool) -> None:
        self.patience = 1 if grown else 2 * self.patience
        self.next_look = self.size + self.patience * max(least, SHARE * self.size)


class PartialResults:
    """Owns, by branch and call, what there is of results that are awaited. ``block`` is the engine's, in tokens."""

    def __init__(self, program: Program, block: int) -> None:
        self._program, self._least = program, block * CHARACTERS
        self._results: dict[Path, dict[str, _Result]] = {}
        self._known: dict[tuple[Path, str], int] = {}
        # Tokens of the tips that the latest look made, all agents' together.
        self._reach: dict[Path, int] = {}

    def called(self, branch: Path, call: ToolCall, guessed: PredictedResult | None) -> None:
        """A call was started, whose result may be ``guessed``."""
        self._results.setdefault(branch, {})[call.id] = _Result(guess=guessed)

    def came(self, branch: Path, call: ToolCall, chunk: str) -> bool:
        """Take note of a piece of a result; whether it is time to make tips of what there is."""
        result = self._results.get(branch, {}).get(call.id)
        if result is None:
            return False
        result.pieces.append(chunk)
        result.size += len(chunk)
        return result.size >= max(result.next_look, self._least)

    def certain(self, branch: Path, state: State) -> tuple[Tip, ...]:
        """The tips of what is there whole."""
        there = inside(self._program, state, branch)
        return () if there is None else tips(*there)

    def extend(self, branch: Path, found: tuple[Tip, ...], state: State) -> tuple[Tip, ...]:
        """``found``, the tips of results that are there, with what there is of others; ``state`` is the run's."""
        results, there = self._results.get(branch), inside(self._program, state, branch)
        if not results or there is None:
            return found
        program, own = there
        texts = {name: clean_text(result.text) for name, result in results.items() if result.text}
        if texts:
            streamed = tuple(evolve(tip, source="stream") for tip in tips(program, own, texts))
            self._looked(branch, results, sum(len(tip.chain) for tip in streamed))
            found = _longest(found, streamed)
            self._known.update({(branch, tip.agent): len(tip.chain) for tip in found})
        return (*found, *_guessed(program, own, results, found))

    def _looked(self, branch: Path, results: Mapping[str, _Result], reach: int) -> None:
        grown = reach > self._reach.get(branch, 0)
        self._reach[branch] = reach
        for result in results.values():
            result.looked(self._least, grown=grown)

    def asked(self, branch: Path, agent: str) -> int:
        """A generation is asked for: how many tokens of ``agent``'s prompt streams had made known. Forgets them."""
        self._results.pop(branch, None)
        self._reach.pop(branch, None)
        return self._known.pop((branch, agent), 0)


def guess(tool: Tool[Any, ..., Any], call: ToolCall, memo: Memo | None) -> PredictedResult | None:
    """What ``call`` may give: by the tool's own hook, else by what it gave before, if it only reads.

    Raises ``ToolError`` where the hook raises, or returns what is no text.
    """
    if tool.predict is not None:
        with guarded(f"tool {tool.name!r}: its predict function", ToolError):
            text: object = tool.predict(call)
        if not isinstance(text, str | None):
            returned = type(text).__qualname__
            raise ToolError(f"tool {tool.name!r}: its predict function returned a {returned}; return str or None")
        if text is not None:
            return PredictedResult("hook", clean_text(text))
    return memo.predict(call) if memo is not None and tool.read_only else None


def _guessed(program: Program, state: State, results: Mapping[str, _Result], found: tuple[Tip, ...]) -> tuple[Tip, ...]:
    """Tips of prompts with guesses in the place of results, where these go further than ``found``.

    Their source is that of the first guess: what comes behind stands or falls with it.
    """
    guesses = {name: result.guess for name, result in results.items() if result.guess is not None}
    slots = tuple(_filled(slot, guesses) for slot in state.slots)
    first = next(
        (guesses[slot.call.id] for slot in state.slots if slot.outcome is None and slot.call.id in guesses), None
    )
    if first is None:
        return ()
    further = tips(program, evolve(state, slots=slots))
    lengths = {tip.agent: len(tip.chain) for tip in found}
    return tuple(evolve(tip, source=first.source) for tip in further if len(tip.chain) > lengths.get(tip.agent, 0))


def _filled(slot: Slot, guesses: Mapping[str, PredictedResult]) -> Slot:
    if slot.outcome is not None or slot.call.id not in guesses:
        return slot
    return evolve(slot, outcome=Outcome("ok", guesses[slot.call.id].text))


def _longest(found: tuple[Tip, ...], streamed: tuple[Tip, ...]) -> tuple[Tip, ...]:
    longer = {tip.agent: tip for tip in streamed}
    return tuple(
        longer[tip.agent] if tip.agent in longer and len(longer[tip.agent].chain) > len(tip.chain) else tip
        for tip in found
    )
