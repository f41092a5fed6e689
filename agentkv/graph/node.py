"""The nodes of a graph, and where it starts and ends."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar

from attrs import field, frozen

from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.tools import Status, Tool

__all__ = (
    "END",
    "START",
    "CallResult",
    "Expected",
    "Kind",
    "Node",
    "Order",
    "Render",
    "Replan",
    "Routed",
    "Target",
    "Terminal",
    "ToolChoice",
)

Kind = Literal["plan", "replan", "tool", "observe", "fork", "spawn", "join"]
Order = Literal["call", "arrival"]
ToolChoice = Literal["auto", "required", "none"] | tuple[Tool[Any, ..., Any], ...]
LabelT = TypeVar("LabelT", bound=str)
ValueT = TypeVar("ValueT")
RoutesP = ParamSpec("RoutesP")


class Terminal(StrEnum):
    """Where every graph starts and ends; no node can have these names."""

    START = "START"
    END = "END"


START: Final = Terminal.START
END: Final = Terminal.END


@frozen(kw_only=True)
class CallResult:
    """One finished call, as ``render`` of an ``observe`` node sees it; ``arguments`` is JSON."""

    name: str
    arguments: str
    text: str
    status: Status


Render = Callable[[CallResult], str]


@frozen(kw_only=True, eq=False)
class Node:
    """A node, made by a method of ``Graph``. Equal only to itself.

    ``agent`` is None for nodes that generate nothing. ``tools`` narrows the agent's tools for this step,
    None leaves them all; ``tool_choice`` as a tuple means exactly these calls in this order;
    ``max_tokens`` None leaves the agent's. ``labels`` is what a replan node decodes before anything else.
    ``order`` and ``max_concurrency`` are a tool node's, ``render`` is an observe node's (None: as it is).
    """

    name: str
    kind: Kind
    agent: Agent[Any, Any] | None = None
    instruction: str | None = None
    tools: tuple[Tool[Any, ..., Any], ...] | None = None
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = None
    labels: tuple[str, ...] = ()
    order: Order = "call"
    max_concurrency: int | None = None
    render: Render | None = field(default=None, repr=False)

    @property
    def generates(self) -> bool:
        return self.agent is not None

    @property
    def offered(self) -> tuple[Tool[Any, ..., Any], ...]:
        """The tools that this step may call, by its own ``tools`` or else its agent's."""
        if self.agent is None:
            return ()
        return self.agent.tools if self.tools is None else self.tools


Target = Node | Literal[Terminal.END]


class Replan(Node, Generic[LabelT]):
    """A generating node whose ``LabelT`` choose where the run goes; without labels of its own, ``"answer"``."""

    def routes(self, targets: Mapping[LabelT, Target]) -> Mapping[str, Target]:
        """``targets`` by the labels' text; here so that a type checker knows which labels there are."""
        return _by_label(self.name, targets)

    def chances(self, chances: Mapping[LabelT, float]) -> Mapping[str, float]:
        """``chances`` by the labels' text, likewise."""
        return _by_label(self.name, chances)


def _by_label(node: str, given: Mapping[Any, ValueT]) -> dict[str, ValueT]:
    if not isinstance(given, Mapping):
        raise GraphError(f"node {node!r}: {given!r} must be a mapping from its labels")
    return {str(getattr(label, "value", label)): value for label, value in given.items()}


class Routed(Protocol[RoutesP]):
    """A node that knows its labels. What ``routes`` takes is what ``Graph.route`` takes for it.

    A plain ``Mapping[LabelT, Target]`` there would not do: mypy reads the keys of a dict display as ``str``
    before it solves for ``LabelT``; the parameters of ``routes`` are solved first.
    """

    def routes(self, *args: RoutesP.args, **kwargs: RoutesP.kwargs) -> Mapping[str, Target]: ...


class Expected(Protocol[RoutesP]):
    """The same of what ``chances`` and ``Graph.expect`` take."""

    def chances(self, *args: RoutesP.args, **kwargs: RoutesP.kwargs) -> Mapping[str, float]: ...
