"""What there is to prefill ahead."""

from agentkv.config import TransferMode

__all__ = ("AUTO_LEAST", "follows", "missing_tokens", "prefills_ahead")

# In "auto" mode, prompts shorter than this many tokens are left to the prefix cache: what could be prefilled
# ahead of them is less than what the extra requests cost.
AUTO_LEAST = 128


def prefills_ahead(mode: TransferMode) -> bool:
    """Whether anything is prefilled ahead in ``mode``."""
    return mode in ("auto", "bidirectional")


def follows(mode: TransferMode, known: int) -> bool:
    """Whether a chain with ``known`` certain tokens is worth keeping caught up."""
    return prefills_ahead(mode) and (mode != "auto" or known >= AUTO_LEAST)


def missing_tokens(resident: int, known: int, block: int) -> int:
    """Tokens in whole blocks of ``block`` that are certain and not cached; nothing but whole blocks stays cached.

    ``resident`` tokens are believed cached and ``known`` are certain, in tokens from the chain's start.
    """
    return max(0, known // block * block - resident // block * block)
