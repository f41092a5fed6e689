"""The labels of a replan node: a closed set, from a ``Literal`` or a ``StrEnum``."""

from collections.abc import Iterator
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from agentkv.errors import GraphError

__all__ = ("read_labels",)


def read_labels(node: str, labels: Any) -> tuple[str, ...]:
    """The labels in declared order; none for None. Raises ``GraphError`` naming ``node``."""
    if labels is None:
        return ()
    found = tuple(dict.fromkeys(_members(node, labels)))
    if not found:
        raise GraphError(f"node {node!r}: labels={labels!r} is empty; name at least one label or leave labels out")
    for label in found:
        if not isinstance(label, str) or not label or label != label.strip() or "\n" in label:
            raise GraphError(f"node {node!r}: label {label!r} must be a line of text without space around it")
    return found


def _members(node: str, labels: Any) -> Iterator[Any]:
    if get_origin(labels) is Literal:
        yield from (label.value if isinstance(label, Enum) else label for label in get_args(labels))
    elif get_origin(labels) in (Union, UnionType):
        for part in get_args(labels):
            yield from _members(node, part)
    elif isinstance(labels, type) and issubclass(labels, Enum):
        yield from (member.value for member in labels)
    else:
        raise GraphError(f"node {node!r}: labels={labels!r} must be Literal['a', 'b'] or a StrEnum class")
