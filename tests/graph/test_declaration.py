"""What a declaration refuses by itself, before the graph is compiled."""

from enum import Enum, StrEnum
from typing import Any, Literal

import pytest

from agentkv.errors import GraphError
from agentkv.graph import END, START, Agent, Graph, all_of
from agentkv.tools import tool


@tool
async def find(x: int) -> int:
    """Find."""
    return x


@tool
async def other(x: int) -> int:
    """Other."""
    return x


AGENT = Agent("agent", instructions="", tools=[find])


First = Literal["x"]
Second = Literal["y"]


class Way(StrEnum):
    AGAIN = "again"
    DONE = "done"


def test_labels_keep_their_declared_order() -> None:
    graph = Graph("g")
    assert graph.replan("a", AGENT, labels=Literal["b", "a", "c"]).labels == ("b", "a", "c")
    assert graph.replan("b", AGENT, labels=Way).labels == ("again", "done")
    assert graph.replan("c", AGENT, labels=First | Second).labels == ("x", "y")
    assert graph.replan("d", AGENT, labels=Literal[Way.DONE]).labels == ("done",)
    assert graph.replan("e", AGENT).labels == ()


@pytest.mark.parametrize("labels", [str, int, ("a", "b"), Literal[1], Literal[" a"], Literal["a\nb"]])
def test_labels_are_a_closed_set_of_lines(labels: Any) -> None:
    with pytest.raises(GraphError, match=r"node 'replan': label.* must be"):
        Graph("g").replan("replan", AGENT, labels=labels)


def test_labels_are_not_empty() -> None:
    with pytest.raises(GraphError, match=r"node 'replan': labels=.* is empty"):
        Graph("g").replan("replan", AGENT, labels=Enum("Empty", {}))


@pytest.mark.parametrize("name", ["", " ", "START", "END"])
def test_a_node_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(GraphError, match="a node cannot be called"):
        Graph("g").tool(name)


def test_two_nodes_cannot_share_a_name() -> None:
    graph = Graph("g")
    graph.tool("act")
    with pytest.raises(GraphError, match="two nodes called 'act'"):
        graph.observe("act")


def test_a_node_of_another_graph_is_refused_by_path_and_route() -> None:
    graph, stranger = Graph("g"), Graph("h").plan("plan", AGENT)
    plan = graph.plan("plan", AGENT)
    with pytest.raises(GraphError, match="'plan' is not a node of this graph"):
        graph.path(START, stranger)
    with pytest.raises(GraphError, match="'plan' is not a node of this graph"):
        graph.route(stranger, {"answer": END})
    with pytest.raises(GraphError, match="'plan' is not a node of this graph"):
        graph.route(plan, {"answer": stranger})
    with pytest.raises(GraphError, match="'plan' is not a node of this graph"):
        graph.path(START, "plan")  # type: ignore[arg-type]


def test_a_path_does_not_go_back_to_start_nor_on_from_end() -> None:
    graph = Graph("g")
    plan, act = graph.plan("plan", AGENT), graph.tool("act")
    with pytest.raises(GraphError, match="may end at END only"):
        graph.path(plan, END, act)
    with pytest.raises(GraphError, match="may end at END only"):
        graph.path(plan, START)  # type: ignore[arg-type]


def test_an_unknown_label_is_refused_with_those_that_there_are() -> None:
    graph = Graph("g")
    replan = graph.replan("replan", AGENT, labels=Literal["continue", "answer"])
    with pytest.raises(GraphError, match="node 'replan' has no label 'wrong'; its labels are 'continue', 'answer'"):
        graph.route(replan, {"wrong": END})  # type: ignore[dict-item]


def test_a_label_is_routed_once() -> None:
    graph = Graph("g")
    plan = graph.plan("plan", AGENT)
    graph.route(plan, {"answer": END})
    with pytest.raises(GraphError, match="node 'plan': label 'answer' is routed twice"):
        graph.route(plan, {"answer": END})


def test_only_generating_nodes_have_labels_to_route() -> None:
    graph = Graph("g")
    act = graph.tool("act")
    with pytest.raises(GraphError, match="decodes no labels"):
        graph.route(act, {"answer": END})  # type: ignore[arg-type]


def test_tools_narrow_the_agents_own_in_canonical_order() -> None:
    agent = Agent("agent", instructions="", tools=[other, find])
    node = Graph("g").plan("plan", agent, tools=[other, find], tool_choice=other)
    assert node.tools == (find, other)
    assert node.tool_choice == (other,)
    assert Graph("g").plan("plan", agent).tools is None
    assert Graph("g").plan("plan", agent, tools=[]).offered == ()


def test_chosen_calls_keep_their_order_and_may_repeat() -> None:
    agent = Agent("agent", instructions="", tools=[other, find])
    assert Graph("g").plan("plan", agent, tool_choice=[other, find, other]).tool_choice == (other, find, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": [other]}, "node 'plan': agent 'agent' has no tool 'other'"),
        ({"tool_choice": other}, "node 'plan': tool_choice names 'other'"),
        ({"tool_choice": []}, "node 'plan': .*names no tool"),
        ({"tool_choice": "never"}, "node 'plan': tool_choice='never'"),
        ({"tools": [], "tool_choice": "required"}, "node 'plan': tool_choice='required', but the step has no tools"),
        ({"tools": [], "tool_choice": find}, "node 'plan': tool_choice names 'find'"),
        ({"max_tokens": 0}, "node 'plan': max_tokens=0"),
        ({"instruction": 5}, "node 'plan': instruction=5 must be text"),
        ({"tools": 5}, "node 'plan': tools=5 must be a list of tools"),
        ({"tools": find}, "node 'plan': tools=Tool.* must be a list of tools"),
        ({"tools": "find"}, "node 'plan': tools='find' must be a list of tools"),
        ({"tool_choice": None}, "node 'plan': tool_choice=None must be a list of tools"),
    ],
)
def test_a_wrong_step_names_node_and_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph("g").plan("plan", AGENT, **options)


def test_functions_and_mappings_are_checked_where_they_are_declared() -> None:
    graph = Graph("g")
    node = graph.plan("plan", AGENT)
    with pytest.raises(GraphError, match="node 'look': render=5 must be a function"):
        graph.observe("look", render=5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="node 'plan': 5 must be a mapping from its labels"):
        graph.route(node, 5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="node 'plan': 'x' must be a mapping from its labels"):
        graph.expect(node, "x")  # type: ignore[arg-type]


def test_a_step_needs_an_agent() -> None:
    with pytest.raises(GraphError, match="node 'plan': 'agent' is not an Agent"):
        Graph("g").plan("plan", "agent")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"max_concurrency": 0}, {"order": "random"}])
def test_a_wrong_tool_node_names_node_and_option(options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=f"node 'act': {next(iter(options))}="):
        Graph("g").tool("act", **options)


@pytest.mark.parametrize("name", [3, None, "", " "])
def test_names_are_text(name: Any) -> None:
    with pytest.raises(GraphError, match="a name must be text"):
        Graph(name)
    with pytest.raises(GraphError, match="cannot be called"):
        Graph("g").plan(name, AGENT)


@pytest.mark.parametrize("wrong", ["2", 1.5, True, 0])
def test_counts_are_whole_numbers(wrong: Any) -> None:
    graph = Graph("g")
    with pytest.raises(GraphError, match=f"max_tokens={wrong!r} must be a whole number"):
        graph.plan("plan", AGENT, max_tokens=wrong)
    with pytest.raises(GraphError, match=f"max_concurrency={wrong!r} must be a whole number"):
        graph.tool("act", max_concurrency=wrong)
    with pytest.raises(GraphError, match=f"at_least={wrong!r}"):
        all_of(at_least=wrong)
    with pytest.raises(GraphError, match=f"limit={wrong!r}"):
        graph.spawn("many", AGENT, over=lambda _: [], prompt=str, limit=wrong)


def test_a_joins_timeout_is_a_number() -> None:
    with pytest.raises(GraphError, match="timeout='2'"):
        all_of(timeout="2")  # type: ignore[arg-type]
