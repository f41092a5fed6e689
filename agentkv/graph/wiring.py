"""Which node may follow which: the meaning of paths and routes, before and after a graph is checked."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from attrs import field, frozen

from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Join
from agentkv.graph.node import END, START, Node
from agentkv.graph.strategies import Winner

__all__ = ("ANSWER", "Move", "Wiring")

ANSWER = "answer"


class Move(NamedTuple):
    """One way on from a node. ``label`` is drawn on it; ``calls`` says that a generation takes it with tool calls."""

    target: str
    label: str | None = None
    calls: bool = False


@frozen(kw_only=True)
class Wiring:
    """Nodes by name, the edges of all paths, and targets by node and label. START and END appear by name.

    ``likely`` are the probabilities that were declared, by node and label.
    """

    nodes: Mapping[str, Node]
    edges: tuple[tuple[str, str], ...]
    labelled: Mapping[tuple[str, str], str]
    likely: Mapping[tuple[str, str], float] = field(factory=dict)

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
        if isinstance(node, Branches):
            yield from (Move(join.name) for join in self.joins_of(name))
            return
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

    def chances(self, name: str) -> tuple[tuple[Move, float], ...]:
        """The ways on from a node, and how likely each is: as declared, what that leaves in equal parts."""
        moves = tuple(self.moves(name))
        declared = [self.likely.get((name, move.label)) if move.label is not None else None for move in moves]
        given = sum(chance for chance in declared if chance is not None)
        rest = max(0.0, 1.0 - given) / max(1, declared.count(None))
        shares = [rest if chance is None else chance for chance in declared]
        # Less than 1 where every way was declared, but not each label leads to one of its own.
        total = sum(shares)
        return tuple(
            (move, share / total if total else 1 / len(moves)) for move, share in zip(moves, shares, strict=True)
        )

    def joins_of(self, name: str) -> tuple[Join, ...]:
        """The joins of the branches that start at ``name``; one, in a graph that compiles."""
        return tuple(node for node in self.nodes.values() if isinstance(node, Join) and node.source == name)

    @property
    def judges(self) -> Mapping[str, str]:
        """Nodes that are asked by a join and by nothing else: the join's name by theirs."""
        return {
            node.strategy.judge.name: node.name
            for node in self.nodes.values()
            if isinstance(node, Join) and isinstance(node.strategy, Winner) and isinstance(node.strategy.judge, Node)
        }

    def speakers_before(self, name: str) -> tuple[Agent[Any, Any] | None, ...]:
        """The agents whose chain a run may have come along to ``name``; None where it comes from START."""
        found: dict[str, Agent[Any, Any] | None] = {}
        seen, waiting = {name}, deque([name])
        while waiting:
            for source in self._sources(waiting.popleft()):
                node = self.nodes.get(source)
                agent = node.of if isinstance(node, Branches) else None if node is None else node.agent
                if node is None:
                    found[START] = None
                elif agent is not None and node.kind != "spawn":
                    found[agent.name] = agent
                elif source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return tuple(found.values())

    def _sources(self, name: str) -> tuple[str, ...]:
        every = (START.value, *self.nodes)
        return tuple(source for source in every if any(move.target == name for move in self.moves(source)))
