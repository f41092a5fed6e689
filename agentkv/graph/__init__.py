"""Agents and graphs: what a user declares, and how it is checked."""

from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Join, check_label, label_branches
from agentkv.graph.choice import Choice
from agentkv.graph.compiled import CompiledGraph, Shape, compile
from agentkv.graph.declaration import Graph
from agentkv.graph.drawing import mermaid
from agentkv.graph.node import END, START, CallResult, Node, Render, Replan, Target, ToolChoice
from agentkv.graph.standard import standard_graph
from agentkv.graph.strategies import (
    AllOf,
    First,
    OnError,
    Strategy,
    Summary,
    Winner,
    all_of,
    first,
    summary,
    winner,
)

__all__ = (
    "END",
    "START",
    "Agent",
    "AllOf",
    "Branches",
    "CallResult",
    "Choice",
    "CompiledGraph",
    "First",
    "Graph",
    "Join",
    "Node",
    "OnError",
    "Render",
    "Replan",
    "Shape",
    "Strategy",
    "Summary",
    "Target",
    "ToolChoice",
    "Winner",
    "all_of",
    "check_label",
    "compile",
    "first",
    "label_branches",
    "mermaid",
    "standard_graph",
    "summary",
    "winner",
)
