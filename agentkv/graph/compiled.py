"""A checked graph, and the questions that a run asks of it."""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn

from attrs import field, frozen
from typing_extensions import TypeVar

from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.bodies import bodies
from agentkv.graph.branches import Branches, Join
from agentkv.graph.checks import check_agents, check_cycles, check_nodes, check_output, check_reach
from agentkv.graph.declaration import Graph
from agentkv.graph.drawing import mermaid
from agentkv.graph.fingerprint import describe
from agentkv.graph.node import END, START, Node
from agentkv.graph.output import OutputType, read_output_type
from agentkv.graph.wiring import Wiring

if TYPE_CHECKING:
    import networkx as nx

__all__ = ("CompiledGraph", "Shape", "compile")

Shape = Literal["calls", "answer"]
DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


@frozen(kw_only=True, eq=False, slots=False)
class CompiledGraph(Generic[DepsT, OutputT]):
    """What ``compile`` returns: a graph that runs as declared. Nodes are named; END is the target of a way out.

    ``bodies`` are the graphs of what runs beside the main chain: by fork or spawn that of each branch, by join that of
    its judge, or of the agent that sums up.
    """

    name: str
    deps: type[Any]
    output: Any
    wiring: Wiring = field(repr=False)
    bodies: Mapping[str, "CompiledGraph[Any, Any]"] = field(factory=dict, repr=False)

    @property
    def nodes(self) -> Mapping[str, Node]:
        return MappingProxyType(dict(self.wiring.nodes))

    @property
    def start(self) -> str:
        """The node after START."""
        return self.wiring.paths_from(START)[0]

    @cached_property
    def agents(self) -> tuple[Agent[Any, Any], ...]:
        """The agents of the main chain and of forks, which may become it, in the order in which they appear."""
        by_name: dict[str, Agent[Any, Any]] = {}
        judges = self.wiring.judges
        for node in self.wiring.nodes.values():
            if node.agent is not None and node.name not in judges:
                by_name.setdefault(node.agent.name, node.agent)
            elif node.kind == "fork":
                by_name |= {agent.name: agent for agent in self.bodies[node.name].agents if agent.name not in by_name}
        return tuple(by_name.values())

    @property
    def all_nodes(self) -> Mapping[str, Node]:
        """The nodes by name, and those of what runs beside by ``FORK>NAME``."""
        found = dict(self.wiring.nodes)
        for outer, body in self.bodies.items():
            found |= {f"{outer}>{name}": node for name, node in body.all_nodes.items()}
        return found

    @cached_property
    def several(self) -> bool:
        """Whether there is more than one agent that a run may come to next."""
        return len({agent.name for name in self.wiring.nodes for agent in self.asked_at(name)}) > 1

    @cached_property
    def output_type(self) -> OutputType:
        """How the text of an answer is read."""
        return read_output_type(self.output, f"graph {self.name!r}")

    @cached_property
    def breadth(self) -> int:
        """How many branches a run may have at once, those of branches included."""
        forks = (node for node in self.wiring.nodes.values() if isinstance(node, Branches))
        return max((node.most * max(1, self.bodies[node.name].breadth) for node in forks), default=0)

    def join_of(self, name: str) -> Join:
        """The join of a fork or spawn."""
        return self.wiring.joins_of(name)[0]

    @cached_property
    def digest(self) -> str:
        """A hash of everything declared, the same in every process: 64 hexadecimal digits.

        Of functions it covers the names only, not what is in them.
        """
        digests = {name: body.digest for name, body in self.bodies.items()}
        described = describe(self.name, self.output, self.wiring, digests)
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
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
        """Where a tool, observe or join node leads."""
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
        for after in self._next_to_generate(node):
            if after.agent is not None:
                found.setdefault(after.agent.name, after.agent)
            elif after.kind == "fork":
                first = self.bodies[after.name]
                found |= {agent.name: agent for agent in first.next_agents(START) if agent.name not in found}
        return tuple(found.values())

    def onward(self, node: str) -> Mapping[str, float]:
        """The nodes that may be the next to ask for a generation after ``node``, and how likely each is as declared.

        A fork or spawn asks for those of its branches. END: the run ends without another. The chances add up to 1.
        """
        found: dict[str, float] = {}
        for move, chance in self.wiring.chances(node):
            target = move.target
            while target != END and not _asks(self.wiring.nodes[target]):
                target = self.after(target)
            found[target] = found.get(target, 0.0) + chance
        return found

    def asked_at(self, node: str) -> tuple[Agent[Any, Any], ...]:
        """The agents that are asked first where a run is at ``node``: its own, or those of its branches.

        None at END, and at a judge, who is asked beside the main chain.
        """
        at = None if node in self.wiring.judges else self.wiring.nodes.get(node)
        if isinstance(at, Branches):
            return self.bodies[node].next_agents(START)
        return () if at is None or at.agent is None else (at.agent,)

    def next_spawns(self, node: str) -> tuple[Branches, ...]:
        """The spawn that is sure to begin after ``node``, whatever comes of it, if its branches are declared."""
        nearest = self._next_to_generate(node)
        sure = len(nearest) == 1 and not self._may_end(node)
        return tuple(after for after in nearest if sure and isinstance(after, Branches) and after.kind == "spawn")

    def _next_to_generate(self, node: str) -> list[Node]:
        """The nearest nodes on each way from ``node`` that generate, or whose branches do."""
        after = (self.wiring.nodes[name] for name in self._nearest(node) if name != END)
        return [each for each in after if _asks(each)]

    def _may_end(self, node: str) -> bool:
        return END in self._nearest(node)

    def _nearest(self, node: str) -> list[str]:
        """Where the ways from ``node`` lead, each up to the first node that asks for a generation."""
        seen: dict[str, None] = {}
        waiting = deque([node])
        while waiting:
            for move in self.wiring.moves(waiting.popleft()):
                if move.target not in seen:
                    seen[move.target] = None
                    if move.target != END and not _asks(self.wiring.nodes[move.target]):
                        waiting.append(move.target)
        return list(seen)

    def __str__(self) -> str:
        """The graph in Mermaid."""
        return mermaid(self)


def _asks(node: Node) -> bool:
    return node.generates or isinstance(node, Branches)


# Levels of branches within branches. A run goes through them by recursion, and Python has a limit to that.
DEEPEST = 100


def compile(graph: Graph[DepsT, OutputT]) -> CompiledGraph[DepsT, OutputT]:
    """Check a graph and freeze it, and those of its branches. Raises ``GraphError`` naming the first node at fault."""
    return _compile(graph, ())


def _compile(graph: Graph[Any, Any], inside: tuple[Graph[Any, Any], ...]) -> CompiledGraph[Any, Any]:
    if graph in inside:
        _refuse(graph.name, "runs in a branch of itself; a graph cannot contain itself")
    if len(inside) > DEEPEST:
        _refuse(graph.name, f"is in branches of branches, more than {DEEPEST} deep; let a branch end and fork again")
    wiring = graph.wiring
    _refuse_first(graph, _problems(wiring))
    within = {name: _compile(body, (*inside, graph)) for name, body in bodies(wiring)}
    outputs = {name: body.output for name, body in within.items()}
    compiled = CompiledGraph[Any, Any](
        name=graph.name, deps=graph.deps, output=graph.output, wiring=wiring, bodies=within
    )
    _refuse_first(graph, check_agents(compiled.all_nodes, graph.deps))
    _refuse_first(graph, check_output(wiring, outputs, graph.output))
    return compiled


def _problems(wiring: Wiring) -> Iterator[str]:
    moves = _moves(wiring)
    yield from check_cycles(wiring, moves)
    yield from check_nodes(wiring)
    yield from check_reach(wiring, moves)


def _moves(wiring: Wiring) -> "nx.DiGraph[str]":
    import networkx as nx  # slow to import, and not needed before a graph is compiled

    moves = nx.DiGraph()
    moves.add_nodes_from((START.value, END.value, *wiring.nodes))
    moves.add_edges_from((name, move.target) for name in (START.value, *wiring.nodes) for move in wiring.moves(name))
    return moves


def _refuse_first(graph: Graph[Any, Any], problems: Iterable[str]) -> None:
    for problem in problems:
        _refuse(graph.name, problem)


def _refuse(graph: str, problem: str) -> NoReturn:
    raise GraphError(f"graph {graph!r}: {problem}")
