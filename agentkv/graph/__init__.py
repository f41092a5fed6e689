"""Agents and graphs: what a user declares, and how it is checked."""

from agentkv.graph.agent import Agent
from agentkv.graph.choice import Choice
from agentkv.graph.compiled import CompiledGraph, Shape, compile
from agentkv.graph.declaration import Graph
from agentkv.graph.drawing import mermaid
from agentkv.graph.node import END, START, Branches, CallResult, Node, Render, Replan, Target, ToolChoice
from agentkv.graph.standard import standard_graph
from agentkv.graph.strategies import Strategy, all_of, first, summary, winner

__all__ = (
    "END",
    "START",
    "Agent",
    "Branches",
    "CallResult",
    "Choice",
    "CompiledGraph",
    "Graph",
    "Node",
    "Render",
    "Replan",
    "Shape",
    "Strategy",
    "Target",
    "ToolChoice",
    "all_of",
    "compile",
    "first",
    "mermaid",
    "standard_graph",
    "summary",
    "winner",
)
