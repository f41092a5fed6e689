"""What a run's reducer needs and never changes: the compiled graph, the chat format, anchors and limits."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from agentkv.chain import ChatFormat, LabelShape, Segment, ToolDefinition, TurnShape, check_label
from agentkv.config import Limits
from agentkv.errors import PromptTooLong
from agentkv.graph import Agent, Branches, CompiledGraph, Node
from agentkv.tools import Tool

__all__ = ("AgentProgram", "NodeProgram", "Program", "make_program")

# Calls that a model may make in one turn of its own choice; a turn with more is asked for again. Each is a level of
# nesting in the constraint, of which vLLM takes 64.
MOST_CALLS = 8


@frozen(kw_only=True)
class AgentProgram:
    """One agent, made ready for a chat format. ``anchor`` starts every chain of the agent, ``digest`` names it."""

    agent: Agent[Any, Any]
    definitions: tuple[ToolDefinition, ...]
    anchor: tuple[int, ...]
    digest: str


@frozen(kw_only=True)
class NodeProgram:
    """One generating node: the tools that it offers and the shape of its turn."""

    node: Node
    agent: AgentProgram
    tools: Mapping[str, Tool[Any, ..., Any]]
    shape: TurnShape

    @property
    def max_tokens(self) -> int:
        return self.node.max_tokens or self.agent.agent.max_tokens


@frozen(kw_only=True)
class Program:
    """A graph made ready to run on one model. Immutable, shared by all runs of that graph.

    ``branches`` are the programs of what runs beside the main chain, by fork, spawn or join; ``whole`` are the limits
    of the run, of which ``limits`` are those of this part.
    """

    graph: CompiledGraph
    format: ChatFormat
    max_model_len: int
    limits: Limits
    whole: Limits
    branches: Mapping[str, "Program"]
    agents: Mapping[str, AgentProgram]
    nodes: Mapping[str, NodeProgram]


def make_program(
    graph: CompiledGraph, format: ChatFormat, max_model_len: int, limits: Limits, whole: Limits | None = None
) -> Program:
    """Freeze anchors and constraints. Raises ``GraphError`` and ``PromptTooLong`` with the node's name.

    ``whole`` are the run's limits, where ``limits`` are only those of one of its branches.
    """
    whole = whole or limits
    agents = {agent.name: _agent_program(agent, format, max_model_len) for agent in graph.agents}
    nodes = {
        node.name: _node_program(node, agents[node.agent.name], graph, format)
        for node in graph.nodes.values()
        if node.agent is not None and node.name not in graph.wiring.judges
    }
    branches = {
        name: make_program(body, format, max_model_len, _limits_of(graph.nodes[name]) or whole, whole)
        for name, body in graph.bodies.items()
    }
    return Program(
        graph=graph,
        format=format,
        max_model_len=max_model_len,
        limits=limits,
        whole=whole,
        branches=branches,
        agents=agents,
        nodes=nodes,
    )


def _limits_of(node: Node) -> Limits | None:
    return node.limits if isinstance(node, Branches) else None


def _agent_program(agent: Agent[Any, Any], format: ChatFormat, max_model_len: int) -> AgentProgram:
    definitions = tuple(
        ToolDefinition(name=tool.name, description=tool.description, parameters=dict(tool.parameters))
        for tool in agent.tools
    )
    anchor = tuple(format.anchor(agent.instructions, definitions))
    if len(anchor) >= max_model_len:
        raise PromptTooLong(
            f"agent {agent.name!r}: instructions and tool definitions are {len(anchor)} tokens, the model takes "
            f"{max_model_len}; shorten them or serve the model with a larger max_model_len"
        )
    digest = Segment(kind="anchor", label=agent.name, ids=anchor).digest
    return AgentProgram(agent=agent, definitions=definitions, anchor=anchor, digest=digest)


def _node_program(node: Node, agent: AgentProgram, graph: CompiledGraph, format: ChatFormat) -> NodeProgram:
    tools = {tool.name: tool for tool in node.offered}
    labels = graph.label_shapes(node.name)
    for label, _ in labels:
        check_label(label, format.tokenizer)
    offered = tools if graph.can_call(node.name) and node.tool_choice != "none" else {}
    choice = _choice(node, bool(offered), graph.may_answer(node.name))
    shape = TurnShape(
        tools=tuple(definition for definition in agent.definitions if definition.name in offered),
        choice=choice,
        max_calls=max(MOST_CALLS, len(choice) if isinstance(choice, tuple) else 0),
        labels=tuple(LabelShape(name=label, then=then) for label, then in labels),
        answer=_answer(agent, graph.may_answer(node.name)),
    )
    return NodeProgram(node=node, agent=agent, tools=offered, shape=shape)


def _answer(agent: AgentProgram, may_answer: bool) -> dict[str, Any] | None:
    schema = agent.agent.output_schema if may_answer else None
    return None if schema is None else dict(schema)


def _choice(node: Node, can_call: bool, may_answer: bool) -> Any:
    if not can_call:
        return "none"
    if isinstance(node.tool_choice, tuple):
        return tuple(tool.name for tool in node.tool_choice)
    return "required" if not may_answer else node.tool_choice
