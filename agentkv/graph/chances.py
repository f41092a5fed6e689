"""How likely a node's labels are declared to be."""

from collections.abc import Mapping, Sequence

from agentkv.bounds import is_number
from agentkv.errors import GraphError

__all__ = ("read_chances",)

# What decimal fractions that add up to 1 may miss it by.
ROUNDING = 1e-9


def read_chances(node: str, labels: Sequence[str], given: Mapping[str, float]) -> dict[str, float]:
    """Probabilities by label. Raises ``GraphError`` naming the node and the label that is unknown or out of bounds."""
    for label, chance in given.items():
        if label not in labels:
            raise GraphError(f"node {node!r} has no label {label!r}; its labels are {', '.join(map(repr, labels))}")
        if not is_number(chance) or not 0 <= chance <= 1:
            raise GraphError(f"node {node!r}: the chance {chance!r} of label {label!r} must be from 0 to 1")
    if (total := sum(given.values())) > 1 + ROUNDING:
        raise GraphError(f"node {node!r}: the chances of its labels add up to {total:g}; they must not exceed 1")
    return {label: float(chance) for label, chance in given.items()}
