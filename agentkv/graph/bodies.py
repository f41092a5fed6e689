"""What runs beside the main chain: the graph of each branch, of a judge, and of what sums branches up."""

from collections.abc import Iterator
from typing import Any, Literal

from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Join
from agentkv.graph.declaration import Graph
from agentkv.graph.loop import agent_loop
from agentkv.graph.node import END, START
from agentkv.graph.strategies import Judge, Summary, Winner
from agentkv.graph.wiring import Wiring

__all__ = ("JUDGING", "bodies")

JUDGING = "Which of these is best? Name its label first, then say why."


def bodies(wiring: Wiring) -> Iterator[tuple[str, Graph[Any, Any]]]:
    """The graphs that run under a fork, a spawn or a join, by the node's name. ``wiring`` has been checked."""
    for node in wiring.nodes.values():
        if isinstance(node, Branches):
            yield node.name, _branch(wiring, node)
        elif isinstance(node, Join) and isinstance(node.strategy, Summary):
            agent = node.strategy.agent
            yield node.name, agent_loop(agent, (), name=node.name)
        elif isinstance(node, Join) and isinstance(node.strategy, Winner) and node.strategy.judge is not None:
            yield node.name, _judge(wiring, node, node.strategy.judge)


def _branch(wiring: Wiring, node: Branches) -> Graph[Any, Any]:
    if node.body is not None:
        return node.body
    agent = node.of or next(agent for agent in wiring.speakers_before(node.name) if agent is not None)
    return agent_loop(agent, node.tools, name=node.name)


def _judge(wiring: Wiring, join: Join, judge: Judge) -> Graph[Any, Any]:
    """One generation that writes a label: of the agent itself, or as the judging node has it."""
    given = None if isinstance(judge, Agent) else judge
    agent = judge if isinstance(judge, Agent) else judge.agent
    assert agent is not None
    graph: Graph[Any, Any] = Graph(join.name, deps=agent.deps, output=agent.output)
    names = given.labels if given is not None else _labels(wiring, join)
    labels: Any = Literal[names]
    node = graph.replan(
        "judge" if given is None else given.name,
        agent,
        labels=labels,
        instruction=JUDGING if given is None else given.instruction or JUDGING,
        tool_choice="none",
        max_tokens=None if given is None else given.max_tokens,
    )
    graph.path(START, node)
    graph.route(node, dict.fromkeys(node.labels, END))
    return graph


def _labels(wiring: Wiring, join: Join) -> tuple[str, ...]:
    source = wiring.nodes[join.source]
    assert isinstance(source, Branches)
    return tuple(label for label, _ in source.declared) or tuple(str(n) for n in range(1, source.limit + 1))
