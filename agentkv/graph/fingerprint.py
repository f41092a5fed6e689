"""A graph's declaration as JSON-compatible data, for its digest."""

from collections.abc import Callable
from typing import Any

from agentkv.graph.agent import Agent
from agentkv.graph.node import Node
from agentkv.graph.wiring import Wiring

__all__ = ("describe",)


def describe(name: str, output: Any, wiring: Wiring) -> dict[str, Any]:
    """Everything that decides how a graph runs and what enters its prompts."""
    return {
        "name": name,
        "output": _type_name(output),
        "nodes": [_node(node) for node in wiring.nodes.values()],
        "edges": [list(edge) for edge in wiring.edges],
        "labelled": [[*source, target] for source, target in wiring.labelled.items()],
    }


def _node(node: Node) -> dict[str, Any]:
    choice = node.tool_choice
    return {
        "name": node.name,
        "kind": node.kind,
        "agent": node.agent and _agent(node.agent),
        "instruction": node.instruction,
        "tools": None if node.tools is None else [tool.name for tool in node.tools],
        "tool_choice": choice if isinstance(choice, str) else [tool.name for tool in choice],
        "max_tokens": node.max_tokens,
        "labels": node.labels,
        "order": node.order,
        "max_concurrency": node.max_concurrency,
        "render": node.render and _function_name(node.render),
    }


def _agent(agent: Agent[Any, Any]) -> dict[str, Any]:
    return {
        "name": agent.name,
        "instructions": agent.instructions,
        "tools": [[tool.name, tool.description, dict(tool.parameters)] for tool in agent.tools],
        "output": agent.output_schema,
        "sampling": [agent.temperature, agent.top_p, agent.max_tokens, agent.retries],
    }


def _function_name(function: Callable[..., Any]) -> str:
    # a callable object or a partial has no name of its own; its repr would hold an address
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _type_name(output: Any) -> str:
    return f"{output.__module__}.{output.__qualname__}" if isinstance(output, type) else repr(output)
