"""The loop that an agent runs in where no graph is declared for it."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypeVar

from agentkv.graph.agent import Agent
from agentkv.graph.declaration import Graph
from agentkv.graph.node import START
from agentkv.tools import Tool

__all__ = ("agent_loop",)

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


def agent_loop(
    agent: Agent[DepsT, OutputT], tools: Sequence[Tool[Any, ..., Any]] | None = None, *, name: str | None = None
) -> Graph[DepsT, OutputT]:
    """Plan → act → observe → replan, which acts again or answers; without tools, plan alone.

    ``tools`` narrows the agent's own. Raises ``GraphError`` for one that the agent does not have.
    """
    graph: Graph[DepsT, OutputT] = Graph(name or agent.name, deps=agent.deps, output=agent.output)
    plan = graph.plan("plan", agent, tools=tools)
    graph.path(START, plan)
    if plan.offered:
        act, observe, replan = graph.tool("act"), graph.observe("observe"), graph.replan("replan", agent, tools=tools)
        graph.path(plan, act, observe, replan, act)
    return graph
