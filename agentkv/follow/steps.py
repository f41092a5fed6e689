"""How far to prefill ahead, and in which steps."""

from agentkv.config import TransferMode

__all__ = ("AUTO_LEAST", "follows", "next_step")

# In "auto" mode, prompts shorter than this many tokens are left to the prefix cache: what could be prefilled
# ahead of them is less than what the extra requests cost.
AUTO_LEAST = 128


def follows(mode: TransferMode, known: int) -> bool:
    """Whether a chain with ``known`` certain tokens is worth keeping caught up."""
    return mode == "bidirectional" or (mode == "auto" and known >= AUTO_LEAST)


def next_step(resident: int, known: int, block: int, step: int) -> int | None:
    """The token up to which the next prefill goes, or None when nothing whole is missing.

    ``resident`` tokens are believed cached and ``known`` are certain, in tokens from the chain's start. Only
    whole blocks of ``block`` tokens stay cached; a step computes at most ``step`` tokens, at least one block.
    """
    goal = known // block * block
    start = resident // block * block
    if start >= goal:
        return None
    return min(goal, start + max(block, step // block * block))
