"""A model that makes up valid output: it calls a tool, reads the result, answers."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from agentkv.chain import ChatFormat, Piece
from agentkv.engines.base import GenerateRequest
from agentkv.engines.made_up.text import ANSWER, made_up
from agentkv.engines.sim import MODEL_PATH
from agentkv.engines.sim_output import ScriptedOutput

__all__ = ("AutoModel",)

_TURN, _RESULT = "<|im_start|>", "<tool_response>"


class AutoModel:
    """The responder for a run without a script. Deterministic, and without memory.

    Where the request's constraint leaves the choice, it calls the first tool with the least arguments that
    the schema admits until it has a result for the last user message, but in two rounds at most, and answers
    then; of several labels it takes the first that goes with that.
    """

    def __init__(self, *, model_path: str | Path = MODEL_PATH, rounds: int = 2) -> None:
        self._model_path = model_path
        self._rounds = rounds

    def __call__(self, request: GenerateRequest) -> ScriptedOutput:
        """The output for one request. Raises ``ScriptError`` for a constraint that it cannot satisfy."""
        text = ANSWER
        if request.constraint is not None:
            marks = self._format.dialect.call_marks
            text = made_up(json.loads(request.constraint)["format"], marks, calling=self._wants_calls(request))
        ids = self._format.tokenizer.encode([Piece(text, trusted=True)])
        return ScriptedOutput([*ids, self._format.stop_ids[0]])

    @cached_property
    def _format(self) -> ChatFormat:
        return ChatFormat.load(self._model_path)

    def _wants_calls(self, request: GenerateRequest) -> bool:
        results = 0
        since_user = 0
        for turn in self._turns(request.token_ids):
            role, _, content = turn.partition("\n")
            if role == "tool" or (role == "user" and content.startswith(_RESULT)):
                results += 1
                since_user += 1
            elif role == "user":
                since_user = 0
        return since_user == 0 and results < self._rounds

    def _turns(self, ids: Sequence[int]) -> list[str]:
        # Cut by id: a user's text may spell the token out.
        start = self._format.tokenizer.token_id(_TURN)
        turns: list[list[int]] = [[]]
        for token in ids:
            if token == start:
                turns.append([])
            else:
                turns[-1].append(token)
        return [self._format.tokenizer.decode(turn) for turn in turns]
