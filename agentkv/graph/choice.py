"""What one step lets the model do: which of its agent's tools it may, must or must not call."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from agentkv.bounds import is_whole
from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.node import ToolChoice
from agentkv.tools import Tool

__all__ = ("Choice", "list_tools", "read_generation")

Tools = tuple[Tool[Any, ..., Any], ...]
Choice = Literal["auto", "required", "none"] | Tool[Any, ..., Any] | Sequence[Tool[Any, ..., Any]]


def read_generation(
    name: str,
    agent: Agent[Any, Any],
    instruction: str | None,
    tools: Sequence[Tool[Any, ..., Any]] | None,
    tool_choice: Choice,
    max_tokens: int | None,
) -> dict[str, Any]:
    """The fields of a generating node. Raises ``GraphError`` naming the node and the tool or option at fault."""
    if not isinstance(agent, Agent):
        raise GraphError(f"node {name!r}: {agent!r} is not an Agent")
    if max_tokens is not None and not is_whole(max_tokens, 1):
        raise GraphError(
            f"node {name!r}: max_tokens={max_tokens!r} must be a whole number of at least 1, or None for the agent's"
        )
    if instruction is not None and not isinstance(instruction, str):
        raise GraphError(f"node {name!r}: instruction={instruction!r} must be text, or None")
    narrowed = None if tools is None else _narrowed(name, agent, list_tools(name, "tools", tools))
    return {
        "agent": agent,
        "instruction": instruction,
        "tools": narrowed,
        "tool_choice": _choice(name, agent.tools if narrowed is None else narrowed, tool_choice),
        "max_tokens": max_tokens,
    }


def list_tools(name: str, option: str, given: object) -> Tools:
    """``given`` as a tuple. Raises ``GraphError`` naming the node and the option for what is no list."""
    if isinstance(given, str | bytes | Tool) or not isinstance(given, Iterable):
        raise GraphError(f"node {name!r}: {option}={given!r} must be a list of tools")
    return tuple(given)


def _narrowed(name: str, agent: Agent[Any, Any], tools: Sequence[Tool[Any, ..., Any]]) -> Tools:
    for tool in tools:
        if tool not in agent.tools:
            shown = getattr(tool, "name", tool)
            raise GraphError(f"node {name!r}: agent {agent.name!r} has no tool {shown!r}; give it to the agent first")
    return tuple(tool for tool in agent.tools if tool in tools)


def _choice(name: str, offered: Tools, choice: Choice) -> ToolChoice:
    if isinstance(choice, str):
        if choice not in ("auto", "required", "none"):
            raise GraphError(f"node {name!r}: tool_choice={choice!r} must be 'auto', 'required', 'none' or tools")
        if choice == "required" and not offered:
            raise GraphError(f"node {name!r}: tool_choice='required', but the step has no tools")
        return choice
    chosen = (choice,) if isinstance(choice, Tool) else list_tools(name, "tool_choice", choice)
    if not chosen:
        raise GraphError(f"node {name!r}: tool_choice=() names no tool; tool_choice='none' forbids calls")
    for tool in chosen:
        if tool not in offered:
            raise GraphError(
                f"node {name!r}: tool_choice names {getattr(tool, 'name', tool)!r}, not a tool of this step"
            )
    return chosen
