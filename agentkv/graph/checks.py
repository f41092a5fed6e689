"""What has to hold for a graph to run; each check yields what is wrong, the node's name in it."""

from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Join
from agentkv.graph.check_branches import check_branches, check_join
from agentkv.graph.node import END, START, Node
from agentkv.graph.wiring import ANSWER, Wiring

if TYPE_CHECKING:
    import networkx as nx

__all__ = ("check_agents", "check_cycles", "check_nodes", "check_output", "check_reach")


def check_nodes(wiring: Wiring) -> Iterator[str]:
    """Each node by itself: what leads to it and what it leads to."""
    if not wiring.nodes:
        yield "has no nodes; declare at least a plan node"
        return
    yield from _check_start(wiring)
    for node in wiring.nodes.values():
        if node.name not in wiring.judges:
            yield from _CHECKS.get(node.kind, _check_generation)(wiring, node)


def _check_start(wiring: Wiring) -> Iterator[str]:
    starts = wiring.paths_from(START)
    if len(starts) != 1:
        found = ", ".join(map(repr, starts)) or "none"
        yield f"needs exactly one node after START (found {found}): path(START, node, ...)"
    for name in starts:
        if name == END or not (wiring.nodes[name].generates or isinstance(wiring.nodes[name], Branches)):
            yield f"starts at {name!r}, which generates nothing; start at a plan node"


def _check_generation(wiring: Wiring, node: Node) -> Iterator[str]:
    yield from _check_labels(wiring, node) if node.labels else _check_unlabelled(wiring, node)
    if node.tool_choice not in ("auto", "none") and not wiring.can_call(node.name):
        yield f"node {node.name!r} must call tools, but no path or label leads from it to a tool node"


def _check_unlabelled(wiring: Wiring, node: Node) -> Iterator[str]:
    paths = wiring.paths_from(node.name)
    for kind, targets in (
        ("calls", {target for target in paths if wiring.leads_to_calls(target)}),
        ("answer", {wiring.answer_target(node.name), *(t for t in paths if not wiring.leads_to_calls(t))}),
    ):
        if len(targets) > 1:
            yield f"node {node.name!r}: its {kind} could go to any of {sorted(targets)}; keep one, or use replan labels"
    if wiring.leads_to_calls(wiring.labelled.get((node.name, ANSWER))):
        yield f"node {node.name!r}: its answer leads to a tool node, which runs calls; use path() for calls"


def _check_labels(wiring: Wiring, node: Node) -> Iterator[str]:
    if paths := wiring.paths_from(node.name):
        yield f"node {node.name!r}: its labels choose the way, so the path to {paths[0]!r} is never taken; use route()"
    for label in node.labels:
        target = wiring.label_target(node.name, label)
        if target is None:
            yield f"node {node.name!r}: label {label!r} leads nowhere; add it to route()"
        elif wiring.leads_to_calls(target):
            if not node.offered or node.tool_choice == "none":
                yield f"node {node.name!r}: label {label!r} leads to {target!r}, but the step may call no tool"
        elif node.tool_choice not in ("auto", "none"):
            yield f"node {node.name!r}: label {label!r} leads to an answer, but tool_choice asks for calls"


def _check_tool(wiring: Wiring, node: Node) -> Iterator[str]:
    yield from _check_single_way_on(wiring, node)
    before = _sources(wiring, node.name)
    for name in before:
        if name == START or not wiring.nodes[name].generates:
            yield f"tool node {node.name!r} follows {name!r}, which makes no calls; put a plan node between"
    callers = [name for name in before if name in wiring.nodes and wiring.nodes[name].generates]
    if callers and not any(wiring.can_call(name) for name in callers):
        yield f"tool node {node.name!r} can never be handed calls: {callers} may call no tool"
    for target in wiring.paths_from(node.name):
        if wiring.leads_to_calls(target):
            yield f"tool node {node.name!r} leads to tool node {target!r}; put an observe and a replan node between"


def _check_observe(wiring: Wiring, node: Node) -> Iterator[str]:
    yield from _check_single_way_on(wiring, node)
    before = _sources(wiring, node.name)
    if not before:
        yield f"observe node {node.name!r} has no tool node before it"
    for name in before:
        if name not in wiring.nodes or wiring.nodes[name].kind != "tool":
            yield f"observe node {node.name!r} follows {name!r}, which is not a tool node"


def _check_single_way_on(wiring: Wiring, node: Node) -> Iterator[str]:
    if len(paths := wiring.paths_from(node.name)) != 1:
        found = ", ".join(map(repr, paths)) or "none"
        yield f"{node.kind} node {node.name!r} needs exactly one node after it (found {found}); lead it on with path()"


_CHECKS: Mapping[str, Callable[[Wiring, Any], Iterator[str]]] = {
    "tool": _check_tool,
    "observe": _check_observe,
    "fork": check_branches,
    "spawn": check_branches,
    "join": check_join,
}


def _sources(wiring: Wiring, name: str) -> list[str]:
    """Everything declared to lead to ``name``, whether or not a run can take that way."""
    routed = (source for (source, _), target in wiring.labelled.items() if target == name)
    return list(dict.fromkeys([*(source for source, target in wiring.edges if target == name), *routed]))


def check_cycles(wiring: Wiring, moves: "nx.DiGraph[str]") -> Iterator[str]:
    """Every cycle generates, so that a run in it comes to its limits."""
    import networkx as nx

    silent = moves.subgraph([name for name, node in wiring.nodes.items() if not _generates(node)])
    for group in nx.strongly_connected_components(silent):
        if len(group) > 1 or any(silent.has_edge(name, name) for name in group):
            yield f"nodes {sorted(group)} form a cycle without a generation; put a replan node into it"


def _generates(node: Node) -> bool:
    return node.generates or isinstance(node, Branches)


def check_reach(wiring: Wiring, moves: "nx.DiGraph[str]") -> Iterator[str]:
    """Every node can be reached from START and can reach END."""
    import networkx as nx

    reachable = nx.descendants(moves, START.value)
    ending = nx.ancestors(moves, END.value)
    for name in wiring.nodes:
        if name in wiring.judges:
            continue
        if name not in reachable:
            yield f"node {name!r} can never be reached from START; lead a path or a label to it, or remove it"
        elif name not in ending:
            yield f"node {name!r} has no path to END; lead an answer or a path from it or a later node to END"


def check_agents(nodes: Mapping[str, Node], deps: type[Any]) -> Iterator[str]:
    """Agents of one name are equal, and their tools get the deps that they need. ``nodes`` are by the name shown."""
    seen: dict[str, tuple[str, Agent[Any, Any]]] = {}
    for name, node in nodes.items():
        if node.agent is None:
            continue
        other, agent = seen.setdefault(node.agent.name, (name, node.agent))
        if agent != node.agent:
            yield f"nodes {other!r} and {name!r} have different agents named {agent.name!r}; rename one"
        if not _fits(deps, node.agent.deps):
            wanted = getattr(node.agent.deps, "__name__", node.agent.deps)
            yield f"node {name!r}: agent {node.agent.name!r} needs {wanted}; declare Graph(..., deps={wanted})"


def _fits(given: type[Any], wanted: type[Any]) -> bool:
    if wanted is NoneType or given == wanted:
        return True
    try:
        return issubclass(given, wanted)
    except TypeError:  # protocols and parametrised types cannot be compared at run time
        return True


def check_output(wiring: Wiring, outputs: Mapping[str, Any], output: Any) -> Iterator[str]:
    """What reaches END is of the graph's output type. ``outputs`` are the types of what runs beside, by node."""
    for node in wiring.nodes.values():
        if node.name in wiring.judges or not any(move.target == END for move in wiring.moves(node.name)):
            continue
        given = _given(node, outputs)
        if given != output:
            wrong = f"ends the run with {_name(given)}, but the graph's output is {_name(output)}"
            yield f"node {node.name!r} {wrong}; {_output_cure(wiring, node, output)}"


def _output_cure(wiring: Wiring, node: Node, output: Any) -> str:
    declared = END.value in wiring.paths_from(node.name) or any(name == node.name for name, _ in wiring.labelled)
    if wiring.can_call(node.name) and not declared:
        undeclared = "an answer of it that calls no tool ends the run, though no path says so"
        return f"{undeclared}: declare it with tool_choice='required', or its agent with output={_name(output)}"
    return f"declare the agent that answers with output={_name(output)}, or the graph with what it gives"


def _name(output: Any) -> str:
    return output.__qualname__ if isinstance(output, type) else repr(output)


def _given(node: Node, outputs: Mapping[str, Any]) -> Any:
    if not isinstance(node, Join):
        return str if node.agent is None else node.agent.output
    if node.adopts:
        return outputs[node.source]
    return outputs.get(node.name, str)
