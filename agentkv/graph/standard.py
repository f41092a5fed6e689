"""The compiled loop of an agent."""

from typing_extensions import TypeVar

from agentkv.graph.agent import Agent
from agentkv.graph.compiled import CompiledGraph, compile
from agentkv.graph.loop import agent_loop

__all__ = ("standard_graph",)

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


def standard_graph(agent: Agent[DepsT, OutputT]) -> CompiledGraph[DepsT, OutputT]:
    """What a run of ``agent`` by itself runs as; see ``agent_loop``."""
    return compile(agent_loop(agent))
