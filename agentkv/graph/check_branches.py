"""What has to hold for forks, spawns and joins; each check yields what is wrong, the node's name in it."""

from collections.abc import Iterator
from typing import Any

from agentkv.graph.branches import Branches, Join
from agentkv.graph.node import Node, Replan
from agentkv.graph.strategies import Winner
from agentkv.graph.wiring import Wiring

__all__ = ("check_branches", "check_join")


def check_branches(wiring: Wiring, node: Branches) -> Iterator[str]:
    """A fork or spawn has one join, which is the only way on; a fork knows whose chain it forks."""
    joins = wiring.joins_of(node.name)
    if len(joins) != 1:
        found = ", ".join(repr(join.name) for join in joins) or "none"
        yield f"{node.kind} {node.name!r} needs exactly one join (found {found}): join(NAME, {node.name}, all_of())"
        return
    for target in wiring.paths_from(node.name):
        if target != joins[0].name:
            yield f"{node.kind} {node.name!r} leads to its join {joins[0].name!r}, not to {target!r}; go on from there"
    if node.kind == "fork" and node.body is None:
        yield from _check_trunk(wiring, node)


def _check_trunk(wiring: Wiring, node: Branches) -> Iterator[str]:
    speakers = (node.of,) if node.of is not None else wiring.speakers_before(node.name)
    if not speakers:
        return  # nothing leads here, which is said where that is checked
    if len(speakers) != 1 or speakers[0] is None:
        found = ", ".join("START" if agent is None else repr(agent.name) for agent in speakers)
        yield f"fork {node.name!r} follows {found}: say whose chain it forks with fork(..., agent=...)"
        return
    for tool in node.tools or ():
        if tool not in speakers[0].tools:
            yield f"fork {node.name!r}: agent {speakers[0].name!r} has no tool {getattr(tool, 'name', tool)!r}"


def check_join(wiring: Wiring, node: Join) -> Iterator[str]:
    """A join is entered by its source alone, goes on to one node, and its judge is nobody else's."""
    if len(paths := wiring.paths_from(node.name)) != 1:
        found = ", ".join(map(repr, paths)) or "none"
        yield f"join {node.name!r} needs exactly one node after it (found {found}); lead it on with path()"
    routed = [source for (source, _), target in wiring.labelled.items() if target == node.name]
    for source in (*(source for source, target in wiring.edges if target == node.name), *routed):
        if source != node.source:
            yield f"join {node.name!r} follows {source!r}, but its source is {node.source!r}; lead there instead"
    if isinstance(node.strategy, Winner) and isinstance(node.strategy.judge, Node):
        yield from _check_judge(wiring, node, node.strategy.judge)


def _check_judge(wiring: Wiring, node: Join, judge: Replan[Any]) -> Iterator[str]:
    source = wiring.nodes[node.source]
    labels = [label for label, _ in source.declared] if isinstance(source, Branches) else []
    if wiring.nodes.get(judge.name) is not judge:
        yield f"join {node.name!r}: its judge {judge.name!r} is not a node of this graph"
        return
    if sorted(judge.labels) != sorted(labels):
        found = ", ".join(map(repr, labels)) or "made at run time: give an agent as the judge"
        yield f"node {judge.name!r} judges {node.source!r}, so its labels must be {found}"
    leading = [source for source, target in wiring.edges if target == judge.name]
    if leading or wiring.paths_from(judge.name) or any(source == judge.name for source, _ in wiring.labelled):
        yield f"node {judge.name!r} is the judge of {node.name!r}; no path may lead to it or on from it"
    if wiring.judges.get(judge.name) != node.name:
        yield f"node {judge.name!r} is the judge of two joins; declare one for each"
