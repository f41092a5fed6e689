"""Which node may follow which: the meaning of paths and routes, before and after a graph is checked."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attrs import frozen

from agentkv.graph.node import END, Node

__all__ = ("ANSWER", "Move", "Wiring")

ANSWER = "answer"


class Move(NamedTuple):
    """One way on from a node. ``label`` is drawn on it; ``calls`` says that a generation takes it with tool calls."""

    target: str
    label: str | None = None
    calls: bool = False


@frozen(kw_only=True)
class Wiring:
    """Nodes by name, the edges of all paths, and targets by node and label. START and END appear by name."""

    nodes: Mapping[str, Node]
    edges: tuple[tuple[str, str], ...]
    labelled: Mapping[tuple[str, str], str]

    def paths_from(self, name: str) -> tuple[str, ...]:
        """Where the paths through ``name`` lead, in declared order."""
        return tuple(target for source, target in self.edges if source == name)

    def leads_to_calls(self, target: str | None) -> bool:
        """Whether ``target`` is a tool node, which only calls can lead to."""
        node = None if target is None else self.nodes.get(target)
        return node is not None and node.kind == "tool"

    def call_target(self, name: str) -> str | None:
        """The tool node that the calls of an unlabelled generation go to."""
        return next((target for target in self.paths_from(name) if self.leads_to_calls(target)), None)

    def answer_target(self, name: str) -> str:
        """Where the answer of an unlabelled generation goes: its ``answer`` route, its path, or END."""
        other = (target for target in self.paths_from(name) if not self.leads_to_calls(target))
        return self.labelled.get((name, ANSWER)) or next(other, END.value)

    def label_target(self, name: str, label: str) -> str | None:
        """Where ``label`` of a node leads; an unrouted ``answer`` leads to END."""
        return self.labelled.get((name, label), END.value if label == ANSWER else None)

    def can_call(self, name: str) -> bool:
        """Whether the generation ``name`` may end in tool calls: it has tools, and somewhere to hand them to."""
        node = self.nodes[name]
        if not node.offered or node.tool_choice == "none":
            return False
        if node.labels:
            return any(self.leads_to_calls(self.label_target(name, label)) for label in node.labels)
        return self.call_target(name) is not None

    def may_answer(self, name: str) -> bool:
        """Whether the generation ``name`` may end in an answer."""
        node = self.nodes[name]
        if node.labels:
            return not all(self.leads_to_calls(self.label_target(name, label)) for label in node.labels)
        return node.generates and (node.tool_choice in ("auto", "none") or not self.can_call(name))

    def moves(self, name: str) -> Iterator[Move]:
        """Every way on from a node that a run can take."""
        node = self.nodes.get(name)
        if node is None or not node.generates:
            yield from (Move(target) for target in self.paths_from(name))
            return
        for label in node.labels:
            if target := self.label_target(name, label):
                yield Move(target, label, calls=self.leads_to_calls(target))
        if not node.labels:
            yield from self._unlabelled_moves(name)

    def _unlabelled_moves(self, name: str) -> Iterator[Move]:
        target = self.call_target(name)
        if target is not None and self.can_call(name):
            yield Move(target, calls=True)
        if self.may_answer(name):
            yield Move(self.answer_target(name), ANSWER)
