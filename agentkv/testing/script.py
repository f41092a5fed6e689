"""A model that follows a script."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from agentkv.chain import ChatFormat, Message, Piece, Turn
from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import MODEL_PATH
from agentkv.engines.sim_output import ScriptedOutput
from agentkv.errors import ScriptError
from agentkv.testing.turns import ScriptedTurn

__all__ = ("Script", "run_of")


class Script:
    """Answers the k-th generation of each run with the k-th turn.

    ``turns`` may also be a function of the prompt's text and the request's tag (``RUN/NODE/VISIT``), for runs
    whose generations have no fixed order. Texts become ids by the format of ``model_path``, the simulated
    model's own by default, and end with the token that ends a turn.

    Raises ``ScriptError`` when a run asks for more turns than there are.
    """

    def __init__(
        self,
        turns: Sequence[ScriptedTurn] | Callable[[str, str], ScriptedTurn],
        *,
        model_path: str | Path = MODEL_PATH,
    ) -> None:
        self._turns = turns if callable(turns) else tuple(turns)
        self._model_path = model_path
        self._asked: Counter[str] = Counter()

    def __call__(self, request: GenerateRequest) -> ScriptedOutput:
        """The output for one request: the engine's ``Responder``."""
        if callable(self._turns):
            return self._write(self._turns(self._format.tokenizer.decode(request.token_ids), request.tag))
        run = run_of(request)
        number = self._asked[run]
        if number >= len(self._turns):
            raise ScriptError(
                f"run {run!r} asks for generation {number + 1} ({request.tag!r}), but its script has "
                f"{len(self._turns)} turns; add a turn or end the run earlier"
            )
        self._asked[run] += 1
        return self._write(self._turns[number])

    def assert_complete(self) -> None:
        """Assert that some run asked, and that each one that did used all turns. Functions have no end."""
        assert not callable(self._turns), "a script that is a function has no last turn"
        assert self._asked, f"no run asked for any of the script's {len(self._turns)} turns"
        for run, asked in self._asked.items():
            assert asked == len(self._turns), f"run {run!r} used {asked} of the script's {len(self._turns)} turns"

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
