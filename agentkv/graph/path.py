"""Where in a run of a graph something happens: on the main chain, or in a branch, or in a branch of that."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

__all__ = ("BranchId", "Path", "place", "to_path")


@frozen
class BranchId:
    """A branch of the ``visit``-th time that the run came to ``node``: a fork or spawn, or a join for its judge."""

    node: str
    visit: int
    label: str

    def __str__(self) -> str:
        return f"{self.node}{'' if self.visit == 1 else f'#{self.visit}'}.{self.label}"


#: The branch in which something happens, outermost first; ``()`` is the main chain.
Path: TypeAlias = tuple[BranchId, ...]


def to_path(ids: Iterable[BranchId | Mapping[str, Any]]) -> Path:
    """The path, or the one that a journal holds."""
    return tuple(each if isinstance(each, BranchId) else BranchId(**each) for each in ids)


def place(branch: Path, node: str = "") -> str:
    """``branch`` and the node in it, for people."""
    return ">".join([*map(str, branch), *([node] if node else [])])
