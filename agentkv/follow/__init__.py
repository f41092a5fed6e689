"""Policy of prefilling ahead and of what a run will need, pure."""

from agentkv.follow.arrivals import Arrivals
from agentkv.follow.cost import GUESS, LEAST_SHARE, Load, StepTimes, most_at_once, next_prefill, pays
from agentkv.follow.history import RESULT_GUESSED, ToolTimes, WorkingSets
from agentkv.follow.memo import Memo, Memos, PredictedResult
from agentkv.follow.meter import Meter, Metered
from agentkv.follow.next_steps import NextStep, chances, most_valuable, reached, room_price
from agentkv.follow.steps import AUTO_LEAST, follows, missing_tokens, prefills_ahead
from agentkv.follow.transitions import Transitions, Way
from agentkv.follow.trust import Trust, Trusts

__all__ = (
    "AUTO_LEAST",
    "GUESS",
    "LEAST_SHARE",
    "RESULT_GUESSED",
    "Arrivals",
    "Load",
    "Memo",
    "Memos",
    "Meter",
    "Metered",
    "NextStep",
    "PredictedResult",
    "StepTimes",
    "ToolTimes",
    "Transitions",
    "Trust",
    "Trusts",
    "Way",
    "WorkingSets",
    "chances",
    "follows",
    "missing_tokens",
    "most_at_once",
    "most_valuable",
    "next_prefill",
    "pays",
    "prefills_ahead",
    "reached",
    "room_price",
)
