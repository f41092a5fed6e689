"""Declaring a graph: its nodes, its paths and its routes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import NoneType
from typing import Any, Generic, Literal, overload

from typing_extensions import TypeForm, TypeVar

from agentkv.bounds import is_whole
from agentkv.config import Limits
from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Declared, Join, check_function, read_branches, read_join
from agentkv.graph.chances import read_chances
from agentkv.graph.choice import Choice, read_generation
from agentkv.graph.drawing import mermaid
from agentkv.graph.labels import read_labels
from agentkv.graph.node import (
    END,
    START,
    Expected,
    Node,
    Order,
    Render,
    Replan,
    Routed,
    RoutesP,
    Target,
    Terminal,
)
from agentkv.graph.strategies import OnError, Strategy
from agentkv.graph.wiring import ANSWER, Wiring
from agentkv.tools import Tool

__all__ = ("Graph",)

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)
LabelT = TypeVar("LabelT", bound=str)
ItemT = TypeVar("ItemT")
NodeT = TypeVar("NodeT", bound=Node)
Tools = Sequence[Tool[Any, ..., Any]]
Answering = Replan[Literal["answer"]]
AnyAgent = Agent[DepsT, Any] | Agent[None, Any]


class Graph(Generic[DepsT, OutputT]):
    """A graph being declared; ``compile(graph)`` checks it. ``deps`` and ``output`` are those of its runs.

    Every method raises ``GraphError`` naming the node where the declaration is wrong by itself.
    """

    def __init__(
        self,
        name: str,
        *,
        # the type variables' own defaults say what these mean where they are left out
        deps: type[DepsT] = NoneType,  # type: ignore[assignment]
        output: TypeForm[OutputT] = str,  # type: ignore[assignment]
    ) -> None:
        if not _is_name(name):
            raise GraphError(f"graph {name!r}: a name must be text that is not empty")
        self.name = name
        self.deps: type[Any] = deps
        self.output: Any = output
        self._nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str], None] = {}
        self._labelled: dict[tuple[str, str], str] = {}
        self._likely: dict[tuple[str, str], float] = {}

    def plan(
        self,
        name: str,
        agent: AnyAgent[DepsT],
        *,
        instruction: str | None = None,
        tools: Tools | None = None,
        tool_choice: Choice = "auto",
        max_tokens: int | None = None,
    ) -> Answering:
        """One generation of ``agent``, after ``instruction`` if there is one; it ends in calls or an answer.

        ``tools`` narrows the agent's tools for this step; ``tool_choice`` asks for calls (``"required"``),
        an answer (``"none"``), or exactly these calls in this order (a tool or several).
        """
        node: Answering = Replan(
            name=name, kind="plan", **read_generation(name, agent, instruction, tools, tool_choice, max_tokens)
        )
        return self._add(node)

    @overload
    def replan(
        self,
        name: str,
        agent: AnyAgent[DepsT],
        *,
        instruction: str | None = None,
        tools: Tools | None = None,
        tool_choice: Choice = "auto",
        max_tokens: int | None = None,
    ) -> Answering: ...
    @overload
    def replan(
        self,
        name: str,
        agent: AnyAgent[DepsT],
        *,
        labels: TypeForm[LabelT],
        instruction: str | None = None,
        tools: Tools | None = None,
        tool_choice: Choice = "auto",
        max_tokens: int | None = None,
    ) -> Replan[LabelT]: ...
    def replan(
        self,
        name: str,
        agent: AnyAgent[DepsT],
        *,
        labels: Any = None,
        instruction: str | None = None,
        tools: Tools | None = None,
        tool_choice: Choice = "auto",
        max_tokens: int | None = None,
    ) -> Replan[Any]:
        """One more generation, usually after an observation; the rest is as for ``plan``.

        ``labels``, a ``Literal[...]`` of strings or a ``StrEnum``, are decoded first and choose the way:
        a label routed to a tool node asks for calls, any other for an answer.
        """
        node: Replan[Any] = Replan(
            name=name,
            kind="replan",
            labels=read_labels(name, labels),
            **read_generation(name, agent, instruction, tools, tool_choice, max_tokens),
        )
        return self._add(node)

    def tool(self, name: str, *, order: Order = "call", max_concurrency: int | None = None) -> Node:
        """Runs the calls of the generation before it, in parallel; generates nothing.

        Results enter the prompt in ``"call"`` order or in that of their ``"arrival"``.
        """
        if max_concurrency is not None and not is_whole(max_concurrency, 1):
            raise GraphError(
                f"node {name!r}: max_concurrency={max_concurrency!r} must be a whole number of at least 1, or None"
            )
        if order not in ("call", "arrival"):
            raise GraphError(f"node {name!r}: order={order!r} must be 'call' or 'arrival'")
        return self._add(Node(name=name, kind="tool", order=order, max_concurrency=max_concurrency))

    def observe(self, name: str, render: Render | None = None) -> Node:
        """Turns each result into the text that the model reads, by a pure function; None leaves it as it is."""
        check_function(name, "render", render)
        return self._add(Node(name=name, kind="observe", render=render))

    def path(self, first: Node | Literal[Terminal.START], second: Target, *rest: Target) -> None:
        """Lead from each node to the next.

        From a generating node, a path to a tool node is what its calls take, any other what its answer takes.
        """
        nodes = (first, second, *rest)
        for source, target in pairwise(nodes):
            if source is END or target is START:
                raise GraphError(f"graph {self.name!r}: a path starts at START or a node and may end at END only")
            self._edges[self._key(source), self._key(target)] = None

    def route(self, node: Routed[RoutesP], *targets: RoutesP.args, **named: RoutesP.kwargs) -> None:
        """Say where each label of ``node`` leads: ``g.route(replan, {"continue": act, "answer": END})``."""
        source, known = self._key(node), self._labels(node)
        for label, target in node.routes(*targets, **named).items():
            if label not in known:
                raise GraphError(
                    f"node {source!r} has no label {label!r}; its labels are {', '.join(map(repr, known))}"
                )
            if (source, label) in self._labelled:
                raise GraphError(f"node {source!r}: label {label!r} is routed twice; keep one target")
            self._labelled[source, label] = self._key(target)

    def expect(self, node: Expected[RoutesP], *chances: RoutesP.args, **named: RoutesP.kwargs) -> None:
        """Say how likely each label of ``node`` is, for what is prefilled ahead: ``g.expect(replan, {"answer": 0.9})``.

        Labels left out share what is left in equal parts; so do calls, at a node without labels of its own. It is where
        to begin: what runs were seen to do soon counts for more.
        """
        source, known = self._key(node), self._labels(node)
        read = read_chances(source, known, node.chances(*chances, **named))
        self._likely.update({(source, label): chance for label, chance in read.items()})

    def fork(
        self,
        name: str,
        branches: Mapping[str, str] | Sequence[str] | None = None,
        *,
        over: Callable[[Any], Sequence[ItemT]] | None = None,
        prompt: Callable[[ItemT], str] | None = None,
        limit: int | None = None,
        agent: AnyAgent[DepsT] | None = None,
        tools: Tools | None = None,
        body: "Graph[DepsT, Any] | Graph[None, Any] | None" = None,
        limits: Limits | None = None,
        on_error: OnError = "fail",
    ) -> Branches:
        """Branches on the chain so far, each behind an instruction of its own; they run side by side.

        ``branches`` are instructions by label, or in a list (labels are then numbers from 1). With ``over`` they are
        made at run time: it gets what the node before gave (an agent's answer, of its output type, or a text), and
        ``prompt`` makes an instruction of each item; more than ``limit`` (16) of them end the run. A branch is the
        loop of ``agent`` (None: the one before the fork) with its ``tools`` narrowed, and so one generation with
        ``tools=()``; or it is the graph ``body``. ``limits`` bound each branch beside those of the run. ``on_error``:
        a branch that fails ends the run (``"fail"``), is left out (``"drop"``), or its error stands for its output
        (``"collect"``).
        """
        if body is not None and not isinstance(body, Graph):
            raise GraphError(f"node {name!r}: body={body!r} must be an akv.Graph, or None")
        given = Declared(branches=branches, over=over, prompt=prompt, limit=limit)
        read = read_branches(
            name, "fork", given, tools=tools, limits=limits, on_error=on_error, target=agent, body=body
        )
        return self._add(Branches(name=name, kind="fork", **read))

    def spawn(
        self,
        name: str,
        agent: "AnyAgent[DepsT] | Graph[DepsT, Any] | Graph[None, Any]",
        *,
        over: Sequence[ItemT] | Callable[[Any], Sequence[ItemT]],
        prompt: Callable[[ItemT], str],
        limit: int | None = None,
        limits: Limits | None = None,
        on_error: OnError = "fail",
    ) -> Branches:
        """Sub-agents with a conversation of their own, one an item of ``over``, whose first message ``prompt`` makes.

        ``agent`` runs in its loop; a graph runs as it is declared. ``over`` as a function is called at run time. The
        rest is as for ``fork``. Items that are short and different lines of text are the labels, else numbers are.
        """
        listed, items = (over, None) if callable(over) else (None, over)
        given = Declared(branches=items, over=listed, prompt=prompt, limit=limit)
        body = agent if isinstance(agent, Graph) else None
        read = read_branches(
            name,
            "spawn",
            given,
            tools=None,
            limits=limits,
            on_error=on_error,
            target=None if body is not None else agent,
            body=body,
        )
        return self._add(Branches(name=name, kind="spawn", **read))

    def join(self, name: str, source: Branches, strategy: Strategy) -> Node:
        """Bring the branches of ``source`` back by ``winner``, ``first``, ``all_of`` or ``summary``.

        The run goes from ``source`` to its join by itself; lead it on from the join with ``path``.
        """
        read = read_join(name, source, strategy)
        self._key(source)
        return self._add(Join(name=name, kind="join", **read))

    @property
    def wiring(self) -> Wiring:
        """What has been declared so far, frozen."""
        return Wiring(
            nodes=dict(self._nodes), edges=tuple(self._edges), labelled=dict(self._labelled), likely=dict(self._likely)
        )

    def __str__(self) -> str:
        """The graph in Mermaid, as far as it is declared."""
        return mermaid(self)

    def _add(self, node: NodeT) -> NodeT:
        if not _is_name(node.name) or node.name in (START, END):
            raise GraphError(f"graph {self.name!r}: a node cannot be called {node.name!r}; give it another name")
        if node.name in self._nodes:
            raise GraphError(f"graph {self.name!r} has two nodes called {node.name!r}; rename one")
        self._nodes[node.name] = node
        return node

    def _labels(self, node: object) -> tuple[str, ...]:
        if not isinstance(node, Replan):
            raise GraphError(f"graph {self.name!r}: {node!r} decodes no labels; route() takes a plan or replan node")
        return node.labels or (ANSWER,)

    def _key(self, node: object) -> str:
        if isinstance(node, Terminal):
            return node.value
        if not isinstance(node, Node) or self._nodes.get(node.name) is not node:
            raise GraphError(f"graph {self.name!r}: {getattr(node, 'name', node)!r} is not a node of this graph")
        return node.name


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())
