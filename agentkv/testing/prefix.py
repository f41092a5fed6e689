"""Whether prompts only grow."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

__all__ = ("assert_prefix_stable",)


def assert_prefix_stable(prompts: Iterable[Sequence[int]] | Mapping[str, Iterable[Sequence[int]]]) -> None:
    """Assert that each prompt continues the one before it; a mapping has one such list for each agent."""
    if isinstance(prompts, Mapping):
        for agent, own in prompts.items():
            _check(own, f"agent {agent!r}: ")
    else:
        _check(prompts, "")


def _check(prompts: Iterable[Sequence[int]], whose: str) -> None:
    for number, (before, after) in enumerate(pairwise(prompts), 2):
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
        assert same is None, f"{whose}prompt {number} leaves prompt {number - 1} at token {same} of {len(before)}"
        assert len(before) <= len(after), (
            f"{whose}prompt {number} is only the first {len(after)} of the {len(before)} tokens of prompt {number - 1}"
        )
