"""Policy of prefilling ahead and of what a run will need, pure."""

from agentkv.follow.history import RESULT_GUESSED, ToolTimes, WorkingSets
from agentkv.follow.steps import follows, next_step

__all__ = ("RESULT_GUESSED", "ToolTimes", "WorkingSets", "follows", "next_step")
