"""A checked graph, and the questions that a run asks of it."""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn

from attrs import field, frozen
from typing_extensions import TypeVar

from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.checks import check_agents, check_cycles, check_nodes, check_output, check_reach
from agentkv.graph.declaration import Graph
from agentkv.graph.drawing import mermaid
from agentkv.graph.fingerprint import describe
from agentkv.graph.node import END, START, Node
from agentkv.graph.wiring import Wiring

if TYPE_CHECKING:
    import networkx as nx

__all__ = ("CompiledGraph", "Shape", "compile")

Shape = Literal["calls", "answer"]
DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


@frozen(kw_only=True, eq=False, slots=False)
class CompiledGraph(Generic[DepsT, OutputT]):
    """What ``compile`` returns: a graph that runs as declared. Nodes are named; END is the target of a way out."""

    name: str
    deps: type[Any]
    output: Any
    wiring: Wiring = field(repr=False)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return MappingProxyType(dict(self.wiring.nodes))

    @property
    def start(self) -> str:
        """The node after START; it generates."""
        return self.wiring.paths_from(START)[0]

    @cached_property
    def agents(self) -> tuple[Agent[Any, Any], ...]:
        """The agents in the order of the nodes that they first appear in."""
        by_name: dict[str, Agent[Any, Any]] = {}
        for node in self.wiring.nodes.values():
            if node.agent is not None:
                by_name.setdefault(node.agent.name, node.agent)
        return tuple(by_name.values())

    @cached_property
    def digest(self) -> str:
        """A hash of everything declared, the same in every process: 64 hexadecimal digits.

        Of functions it covers the names only, not what is in them.
        """
        text = json.dumps(describe(self.name, self.output, self.wiring), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def after_generation(self, node: str, label: str | None, has_calls: bool) -> str:
        """Where a generation's outcome leads. Raises ``GraphError`` for an outcome that the node does not allow."""
        for move in self.wiring.moves(node):
            chosen = move.label == label if self.wiring.nodes[node].labels else label is None
            if chosen and move.calls == has_calls:
                return move.target
        outcome = f"{'calls' if has_calls else 'an answer'}{'' if label is None else f' under label {label!r}'}"
        raise GraphError(f"node {node!r} cannot end in {outcome}")

    def after(self, node: str) -> str:
        """Where a tool or observe node leads."""
        return self.wiring.paths_from(node)[0]

    def label_shapes(self, node: str) -> tuple[tuple[str, Shape], ...]:
        """Each label of a node with what has to follow it: calls for a tool node, else an answer."""
        moves = self.wiring.moves(node) if self.wiring.nodes[node].labels else ()
        return tuple((move.label or "", "calls" if move.calls else "answer") for move in moves)

    def can_call(self, node: str) -> bool:
        """Whether a generation may end in tool calls: it has tools, and somewhere to hand them to."""
        return self.wiring.can_call(node)

    def may_answer(self, node: str) -> bool:
        """Whether a generation may end in an answer."""
        return self.wiring.may_answer(node)

    def next_agents(self, node: str) -> tuple[Agent[Any, Any], ...]:
        """The agents whose generation may be the next one after ``node``, the one with fewest nodes between first."""
        found: dict[str, Agent[Any, Any]] = {}
        seen, waiting = {node}, deque([node])
        while waiting:
            for move in self.wiring.moves(waiting.popleft()):
                after = self.wiring.nodes.get(move.target)
                if after is not None and after.agent is not None:
                    found.setdefault(after.agent.name, after.agent)
                elif after is not None and after.name not in seen:
                    seen.add(after.name)
                    waiting.append(after.name)
        return tuple(found.values())

    def __str__(self) -> str:
        """The graph in Mermaid."""
        return mermaid(self)


def compile(graph: Graph[DepsT, OutputT]) -> CompiledGraph[DepsT, OutputT]:
    """Check a graph and freeze it. Raises ``GraphError`` naming the first node at fault."""
    wiring = graph.wiring
    for problem in _problems(graph, wiring):
        _refuse(graph.name, problem)
    return CompiledGraph(name=graph.name, deps=graph.deps, output=graph.output, wiring=wiring)


def _problems(graph: Graph[Any, Any], wiring: Wiring) -> Iterator[str]:
    moves = _moves(wiring)
    yield from check_cycles(wiring, moves)
    yield from check_nodes(wiring)
    yield from check_reach(wiring, moves)
    yield from check_agents(wiring, graph.deps)
    yield from check_output(wiring, graph.output)


def _moves(wiring: Wiring) -> "nx.DiGraph[str]":
    import networkx as nx  # slow to import, and not needed before a graph is compiled

    moves = nx.DiGraph()
    moves.add_nodes_from((START.value, END.value, *wiring.nodes))
    moves.add_edges_from((name, move.target) for name in (START.value, *wiring.nodes) for move in wiring.moves(name))
    return moves


def _refuse(graph: str, problem: str) -> NoReturn:
    raise GraphError(f"graph {graph!r}: {problem}")
