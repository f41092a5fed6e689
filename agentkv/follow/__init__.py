"""Policy of prefilling ahead and of what a run will need, pure."""

from agentkv.follow.cost import GUESS, Load, StepTimes, next_prefill, pays
from agentkv.follow.history import RESULT_GUESSED, ToolTimes, WorkingSets
from agentkv.follow.memo import Memo, Memos, PredictedResult
from agentkv.follow.meter import Meter, Metered
from agentkv.follow.steps import follows, missing_tokens, prefills_ahead

__all__ = (
    "GUESS",
    "RESULT_GUESSED",
    "Load",
    "Memo",
    "Memos",
    "Meter",
    "Metered",
    "PredictedResult",
    "StepTimes",
    "ToolTimes",
    "WorkingSets",
    "follows",
    "missing_tokens",
    "next_prefill",
    "pays",
    "prefills_ahead",
)
