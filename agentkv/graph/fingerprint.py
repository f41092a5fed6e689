"""A graph's declaration as JSON-compatible data, for its digest."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict

from agentkv.graph.agent import Agent
from agentkv.graph.branches import Branches, Join
from agentkv.graph.node import Node
from agentkv.graph.strategies import AllOf, Strategy, Winner
from agentkv.graph.wiring import Wiring

__all__ = ("describe",)


def describe(name: str, output: Any, wiring: Wiring, bodies: Mapping[str, str]) -> dict[str, Any]:
    """Everything that decides how a graph runs, what enters its prompts, and what of that is prefilled ahead.

    ``bodies`` are the digests of the graphs that run under forks, spawns and joins, by node.
    """
    return {
        "name": name,
        "output": _type_name(output),
        "nodes": [{**_node(node), **_branches(node, bodies.get(node.name))} for node in wiring.nodes.values()],
        "edges": [list(edge) for edge in wiring.edges],
        "labelled": [[*source, target] for source, target in wiring.labelled.items()],
        # Graphs without any are described as they were before there were any.
        **({"likely": [[*source, chance] for source, chance in wiring.likely.items()]} if wiring.likely else {}),
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


def _branches(node: Node, body: str | None) -> dict[str, Any]:
    """What only forks, spawns and joins have; other nodes are described as they were before there were any."""
    if isinstance(node, Branches):
        return {
            "body": body,
            "declared": [list(each) for each in node.declared],
            "over": node.over and _function_name(node.over),
            "prompt": node.over and node.prompt and _function_name(node.prompt),
            "limit": node.limit,
            "limits": node.limits and asdict(node.limits),
            "on_error": node.on_error,
        }
    return {"body": body, "source": node.source, "strategy": _strategy(node.strategy)} if isinstance(node, Join) else {}


def _strategy(strategy: Strategy) -> list[Any]:
    kind = type(strategy).__name__
    if isinstance(strategy, Winner):
        return [kind, strategy.choose and _function_name(strategy.choose)]
    return [kind, asdict(strategy)] if isinstance(strategy, AllOf) else [kind]


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
