"""The loop that an agent runs in when no graph is declared."""

from typing_extensions import TypeVar

from agentkv.graph.agent import Agent
from agentkv.graph.compiled import CompiledGraph, compile
from agentkv.graph.declaration import Graph
from agentkv.graph.node import START

__all__ = ("standard_graph",)

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


def standard_graph(agent: Agent[DepsT, OutputT]) -> CompiledGraph[DepsT, OutputT]:
    """Plan → act → observe → replan, which acts again or answers; without tools, plan alone."""
    graph: Graph[DepsT, OutputT] = Graph(agent.name, deps=agent.deps, output=agent.output)
    plan = graph.plan("plan", agent)
    graph.path(START, plan)
    if agent.tools:
        act, observe, replan = graph.tool("act"), graph.observe("observe"), graph.replan("replan", agent)
        graph.path(plan, act, observe, replan, act)
    return compile(graph)
