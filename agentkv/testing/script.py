"""A model that follows a script."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from agentkv.chain import ChatFormat, Message, Piece, Turn
from agentkv.counted import counted
from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import MODEL_PATH
from agentkv.engines.sim_output import ScriptedOutput
from agentkv.errors import ScriptError
from agentkv.testing.turns import ScriptedTurn

__all__ = ("Script", "branch_of", "run_of")


class Script:
    """Answers the k-th generation of each run with the k-th turn.

    For runs with branches ``turns`` are by branch: those of the main chain under ``""``, those of a branch under its
    place in the report (``"options.cheap"``). ``turns`` may also be a function of the prompt's text and the request's
    tag (``RUN/NODE/VISIT``), for generations in no fixed order. Texts become ids by the format of ``model_path``, the
    simulated model's own by default, and end with the token that ends a turn.

    Raises ``ScriptError`` when a run asks for more turns than there are.
    """

    def __init__(
        self,
        turns: Sequence[ScriptedTurn] | Mapping[str, Sequence[ScriptedTurn]] | Callable[[str, str], ScriptedTurn],
        *,
        model_path: str | Path = MODEL_PATH,
    ) -> None:
        self._turns = turns if callable(turns) else _by_branch(turns)
        self._model_path = model_path
        self._asked: Counter[tuple[str, str]] = Counter()

    def __call__(self, request: GenerateRequest) -> ScriptedOutput:
        """The output for one request: the engine's ``Responder``."""
        if callable(self._turns):
            return self._write(self._turns(self._format.tokenizer.decode(request.token_ids), request.tag))
        run, branch = run_of(request), branch_of(request)
        turns, number = self._turns.get(branch, ()), self._asked[run, branch]
        if number >= len(turns):
            asks = f"branch {branch!r} of run {run!r}" if branch else f"run {run!r}"
            raise ScriptError(
                f"{asks} asks for generation {number + 1} ({request.tag!r}), but its script has "
                f"{counted(len(turns), 'turn')}; add a turn or end the run earlier"
            )
        self._asked[run, branch] += 1
        return self._write(turns[number])

    def assert_complete(self) -> None:
        """Assert that some run asked, and that each one that did used all turns. Functions have no end."""
        assert not callable(self._turns), "a script that is a function has no last turn"
        assert self._asked, (
            f"no run asked for any of the script's {counted(sum(map(len, self._turns.values())), 'turn')}"
        )
        for run in {run for run, _ in self._asked}:
            asked = sum(self._asked[run, branch] for branch in self._turns)
            written = sum(map(len, self._turns.values()))
            assert asked == written, f"run {run!r} used {asked} of the script's {counted(written, 'turn')}"

    @cached_property
    def _format(self) -> ChatFormat:
        return ChatFormat.load(self._model_path)

    def _write(self, turn: ScriptedTurn) -> ScriptedOutput:
        if isinstance(turn, ScriptedOutput):
            return turn
        if isinstance(turn, Turn):
            message = Message(role="assistant", content=turn.content, calls=turn.calls)
            return ScriptedOutput(self._format.generation(message))
        ids = self._format.tokenizer.encode([Piece(turn, trusted=True)])
        return ScriptedOutput([*ids, self._format.stop_ids[0]])


def run_of(request: GenerateRequest) -> str:
    """The run that a request belongs to: its tag without node and visit."""
    return request.tag.rsplit("/", 2)[0]


def branch_of(request: GenerateRequest) -> str:
    """The place of the branch that a request belongs to; empty for the main chain's."""
    return request.tag.rsplit("/", 2)[1].rpartition(">")[0] if request.tag.count("/") >= 2 else ""


def _by_branch(
    turns: Sequence[ScriptedTurn] | Mapping[str, Sequence[ScriptedTurn]],
) -> Mapping[str, Sequence[ScriptedTurn]]:
    if isinstance(turns, Mapping):
        return {branch: tuple(each) for branch, each in turns.items()}
    return {"": tuple(turns)}
