"""What compiling refuses, always with the node's name, and what a compiled graph answers."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import GraphError
from agentkv.graph import END, START, Agent, CompiledGraph, Graph, Replan, compile, standard_graph
from agentkv.tools import tool


@tool
async def find(x: int) -> int:
    """Find."""
    return x


class Deps:
    pass


class MoreDeps(Deps):
    pass


AGENT = Agent("agent", instructions="", tools=[find])
WRITER = Agent("writer", instructions="write")
Broken = Callable[[Graph[Any, Any]], None]


def empty(_: Graph) -> None:
    pass


def no_start(g: Graph) -> None:
    g.plan("plan", AGENT)


def two_starts(g: Graph) -> None:
    g.path(START, g.plan("a", WRITER))
    g.path(START, g.plan("b", WRITER))


def start_at_tool(g: Graph) -> None:
    g.path(START, g.tool("act"), g.plan("plan", AGENT))


def start_at_end(g: Graph) -> None:
    g.plan("plan", AGENT)
    g.path(START, END)


def no_way_out(g: Graph) -> None:
    plan = g.plan("plan", AGENT, tool_choice="required")
    g.path(START, plan, g.tool("act"), plan)


def no_way_out_by_answers(g: Graph) -> None:
    plan, replan = g.plan("plan", WRITER), g.replan("replan", WRITER)
    g.path(START, plan, replan, plan)


def unreachable(g: Graph) -> None:
    g.path(START, g.plan("plan", WRITER))
    g.plan("island", WRITER)


def unreachable_since_no_calls(g: Graph) -> None:
    plan = g.plan("plan", AGENT, tool_choice="none")
    g.path(START, plan, g.tool("act"), plan)


def missing_label(g: Graph) -> None:
    plan, act = g.plan("plan", AGENT), g.tool("act")
    replan = g.replan("replan", AGENT, labels=Literal["continue", "escalate", "answer"])
    g.path(START, plan, act, replan)
    g.route(replan, {"continue": act})


def path_from_labels(g: Graph) -> None:
    replan, act = g.replan("replan", AGENT, labels=Literal["continue", "answer"]), g.tool("act")
    g.path(START, replan, act, replan)
    g.route(replan, {"continue": act})


def label_to_tool_without_tools(g: Graph) -> None:
    replan, act = g.replan("replan", WRITER, labels=Literal["go", "answer"]), g.tool("act")
    g.path(START, replan)
    g.path(act, replan)
    g.route(replan, {"go": act})


def label_to_answer_but_required(g: Graph) -> None:
    replan, act = g.replan("replan", AGENT, labels=Literal["go", "answer"], tool_choice="required"), g.tool("act")
    g.path(START, replan)
    g.path(act, replan)
    g.route(replan, {"go": act})


def silent_cycle(g: Graph) -> None:
    plan, one, two = g.plan("plan", AGENT), g.tool("one"), g.tool("two")
    g.path(START, plan, one, two, one)


def observe_without_tool(g: Graph) -> None:
    g.path(START, g.plan("plan", WRITER), g.observe("look"), END)


def lonely_observe(g: Graph) -> None:
    plan = g.plan("plan", WRITER)
    g.path(START, plan)
    g.path(g.observe("look"), plan)


def two_observes(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.tool("act"), g.observe("first"), g.observe("second"), END)


def dead_end_tool(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.tool("act"))


def tool_after_tool(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.tool("one"), g.tool("two"), END)


def tool_after_observe(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.tool("one"), g.observe("look"), g.tool("two"), END)


def dead_end_observe(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.tool("act"), g.observe("look"))


def ambiguous_calls(g: Graph) -> None:
    plan = g.plan("plan", AGENT)
    g.path(START, plan, g.tool("one"), plan)
    g.path(plan, g.tool("two"), plan)


def ambiguous_answer(g: Graph) -> None:
    plan = g.plan("plan", WRITER)
    g.path(START, plan, g.plan("next", WRITER))
    g.path(plan, END)


def answer_to_tool(g: Graph) -> None:
    plan, act = g.plan("plan", AGENT), g.tool("act")
    g.path(START, plan)
    g.path(act, plan)
    g.route(plan, {"answer": act})


def must_call_nowhere(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT, tool_choice=find))


def unequal_agents(g: Graph) -> None:
    g.path(START, g.plan("one", WRITER), g.plan("two", Agent("writer", instructions="else")))


def needs_deps(g: Graph) -> None:
    g.path(START, g.plan("plan", Agent("a", instructions="", deps=Deps)))


def other_output(g: Graph) -> None:
    g.path(START, g.plan("plan", Agent("a", instructions="", output=list[int])))


class Verdict(NamedTuple):
    good: bool


def judged(choice: Literal["auto", "required"]) -> Graph[None, Verdict]:
    g = Graph("g", output=Verdict)
    report = g.plan("report", Agent("judge", instructions="", output=Verdict))
    g.path(START, g.plan("plan", AGENT, tool_choice=choice), g.tool("act"), report, END)
    return g


def test_a_step_that_may_answer_and_is_not_to_is_told_to_require_calls() -> None:
    cure = "declare it with tool_choice='required', or its agent with output=Verdict"
    with pytest.raises(GraphError, match=f"an answer of it that calls no tool ends the run.*: {cure}"):
        compile(judged("auto"))
    compile(judged("required"))


def test_an_answer_of_another_type_is_told_which_to_give() -> None:
    g = Graph("g", output=Verdict)
    g.path(START, g.plan("plan", WRITER), END)
    with pytest.raises(GraphError, match="; declare the agent that answers with output=Verdict, or the graph"):
        compile(g)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (empty, "has no nodes"),
        (no_start, "needs exactly one node after START"),
        (two_starts, "'a', 'b'"),
        (start_at_tool, "starts at 'act', which generates nothing"),
        (start_at_end, "starts at 'END'"),
        (no_way_out, "node 'plan' has no path to END"),
        (no_way_out_by_answers, "node 'plan' has no path to END"),
        (unreachable, "node 'island' can never be reached"),
        (unreachable_since_no_calls, "tool node 'act' can never be handed calls"),
        (missing_label, "node 'replan': label 'escalate' leads nowhere"),
        (path_from_labels, "node 'replan': its labels choose the way, so the path to 'act'"),
        (label_to_tool_without_tools, "node 'replan': label 'go' leads to 'act', but the step may call no tool"),
        (label_to_answer_but_required, "node 'replan': label 'answer' leads to an answer"),
        (silent_cycle, r"nodes \['one', 'two'\] form a cycle without a generation"),
        (observe_without_tool, "observe node 'look' follows 'plan'"),
        (lonely_observe, "observe node 'look' has no tool node before it"),
        (two_observes, "observe node 'second' follows 'first'"),
        (dead_end_tool, "tool node 'act' needs exactly one node after it"),
        (tool_after_tool, "tool node 'one' leads to tool node 'two'"),
        (tool_after_observe, "tool node 'two' follows 'look', which makes no calls"),
        (dead_end_observe, "observe node 'look' needs exactly one node after it"),
        (ambiguous_calls, r"node 'plan': its calls could go to any of \['one', 'two'\]"),
        (ambiguous_answer, r"node 'plan': its answer could go to any of \['END', 'next'\]"),
        (answer_to_tool, "node 'plan': its answer leads to a tool node"),
        (must_call_nowhere, "node 'plan' must call tools"),
        (unequal_agents, "nodes 'one' and 'two' have different agents named 'writer'"),
        (needs_deps, "node 'plan': agent 'a' needs Deps"),
        (other_output, r"node 'plan' ends the run with list\[int\]"),
    ],
)
def test_compiling_refuses_with_the_node_at_fault(build: Broken, message: str) -> None:
    graph = Graph("g")
    build(graph)
    with pytest.raises(GraphError, match=f"graph 'g': .*{message}"):
        compile(graph)


def support() -> Graph:
    graph = Graph("support")
    plan, act = graph.plan("plan", AGENT), graph.tool("act")
    observe, human = graph.observe("observe"), graph.plan("human", WRITER)
    replan = graph.replan("replan", AGENT, labels=Literal["continue", "escalate", "answer"])
    graph.path(START, plan, act, observe, replan)
    graph.route(replan, {"continue": act, "escalate": human, "answer": END})
    return graph


def test_a_run_can_ask_for_every_way_on() -> None:
    graph = compile(support())
    assert graph.start == "plan"
    assert graph.after_generation("plan", None, has_calls=True) == "act"
    assert graph.after_generation("plan", None, has_calls=False) == END
    assert graph.after("act") == "observe"
    assert graph.after("observe") == "replan"
    assert graph.after_generation("replan", "continue", has_calls=True) == "act"
    assert graph.after_generation("replan", "escalate", has_calls=False) == "human"
    assert graph.after_generation("replan", "answer", has_calls=False) == END
    assert graph.label_shapes("replan") == (("continue", "calls"), ("escalate", "answer"), ("answer", "answer"))
    assert graph.label_shapes("plan") == ()


@pytest.mark.parametrize(
    ("node", "label", "has_calls"),
    [
        ("replan", "continue", False),
        ("replan", "answer", True),
        ("replan", None, True),
        ("replan", "wrong", False),
        ("plan", "continue", True),
        ("human", None, True),
    ],
)
def test_an_outcome_that_a_node_does_not_allow_is_refused(node: str, label: str | None, has_calls: bool) -> None:
    with pytest.raises(GraphError, match=f"node '{node}' cannot end in"):
        compile(support()).after_generation(node, label, has_calls)


def test_what_a_generation_may_end_in_follows_from_tools_choice_and_wiring() -> None:
    graph = compile(support())
    assert (graph.can_call("plan"), graph.may_answer("plan")) == (True, True)
    assert (graph.can_call("replan"), graph.may_answer("replan")) == (True, True)
    assert (graph.can_call("human"), graph.may_answer("human")) == (False, True)
    assert (graph.can_call("act"), graph.may_answer("act")) == (False, False)


def test_a_step_that_must_call_may_not_answer() -> None:
    graph = Graph("g")
    plan, last = graph.plan("plan", AGENT, tool_choice=find), graph.replan("last", AGENT)
    graph.path(START, plan, graph.tool("act"), last)
    compiled = compile(graph)
    assert (compiled.can_call("plan"), compiled.may_answer("plan")) == (True, False)
    # the same agent, but no way back to a tool node: the graph behaves as written
    assert (compiled.can_call("last"), compiled.may_answer("last")) == (False, True)


def test_an_unrouted_answer_ends_the_run() -> None:
    graph = Graph("g")
    replan, act = graph.replan("replan", AGENT, labels=Literal["go", "answer"]), graph.tool("act")
    graph.path(START, replan)
    graph.path(act, replan)
    graph.route(replan, {"go": act})
    assert compile(graph).after_generation("replan", "answer", has_calls=False) == END


def test_an_answer_takes_the_path_to_a_node_that_runs_no_calls() -> None:
    graph = Graph("g")
    plan, write = graph.plan("plan", AGENT), graph.plan("write", WRITER)
    graph.path(START, plan, write)
    graph.path(plan, graph.tool("act"), plan)
    compiled = compile(graph)
    assert compiled.after_generation("plan", None, has_calls=False) == "write"
    assert compiled.after_generation("plan", None, has_calls=True) == "act"
    assert compiled.agents == (AGENT, WRITER)


def test_the_nearest_next_agent_comes_first() -> None:
    graph = compile(support())
    assert graph.next_agents("act") == (AGENT,)
    assert graph.next_agents("replan") == (WRITER, AGENT)
    assert graph.next_agents("human") == ()


def test_results_may_end_a_run_whose_output_is_text() -> None:
    graph = Graph("g")
    graph.path(START, graph.plan("plan", AGENT, tool_choice="required"), graph.tool("act"), END)
    assert compile(graph).after("act") == END


def test_more_deps_than_an_agent_needs_are_enough() -> None:
    graph = Graph("g", deps=MoreDeps)
    graph.path(START, graph.plan("plan", Agent("a", instructions="", deps=Deps)))
    assert compile(graph).deps is MoreDeps


def test_a_compiled_graph_does_not_change_with_its_declaration() -> None:
    graph = support()
    compiled = compile(graph)
    graph.plan("late", AGENT)
    assert "late" not in compiled.nodes
    with pytest.raises(TypeError):
        compiled.nodes["late"] = compiled.nodes["plan"]  # type: ignore[index]


def test_the_standard_loop_acts_until_it_answers() -> None:
    graph = standard_graph(AGENT)
    assert [node.kind for node in graph.nodes.values()] == ["plan", "tool", "observe", "replan"]
    assert graph.after_generation("replan", None, has_calls=True) == "act"
    assert graph.after_generation("replan", None, has_calls=False) == END


def test_the_standard_loop_of_an_agent_without_tools_is_one_generation() -> None:
    assert list(standard_graph(WRITER).nodes) == ["plan"]


def test_the_digest_covers_the_declaration() -> None:
    def digest(agent: Agent[Any, Any], **options: Any) -> str:
        graph = Graph("g")
        graph.path(START, graph.plan("plan", agent, **options))
        return compile(graph).digest

    digests = [
        digest(WRITER),
        digest(WRITER, instruction="now"),
        digest(WRITER, max_tokens=9),
        digest(Agent("writer", instructions="else")),
        digest(Agent("writer", instructions="write", temperature=0.5)),
        digest(Agent("writer", instructions="write", tools=[find])),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(WRITER) == digest(Agent("writer", instructions="write"))


def test_the_digest_is_the_same_in_every_process() -> None:
    program = (
        "from agentkv.graph import Agent, standard_graph\n"
        "from agentkv.tools import tool\n"
        "def find(x: int) -> int:\n    'Find.'\n    return x\n"
        "print(standard_graph(Agent('a', instructions='i', tools=[tool(find)], output=dict[str, int])).digest)"
    )
    env = dict(os.environ)
    seen = {_printed(program, env | {"PYTHONHASHSEED": seed}) for seed in ("1", "2")}
    assert len(seen) == 1


def _printed(program: str, env: dict[str, str]) -> bytes:
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, env=env).stdout


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Chains of generations with tools beside them and ways back; a good part of them compiles."""
    graph = Graph("random")
    nodes = [_generating(graph, f"n{i}", draw) for i in range(draw(st.integers(1, 5)))]
    anywhere = st.sampled_from([*nodes, END])
    graph.path(START, nodes[0])
    for node, following in zip(nodes, [*nodes[1:], END], strict=True):
        answer = following if draw(st.integers(0, 3)) else draw(anywhere)
        if draw(st.booleans()):
            act = graph.tool(f"act {node.name}")
            graph.path(act, *([graph.observe(f"look {node.name}")] if draw(st.booleans()) else []), draw(anywhere))
        else:
            act = draw(anywhere)
        if node.labels:
            graph.route(node, {"go": act, "answer": answer})
        else:
            graph.path(node, answer)
            graph.path(node, act)
    return graph


def _generating(graph: Graph, name: str, draw: st.DrawFn) -> Replan[Any]:
    agent = draw(st.sampled_from([AGENT, AGENT, WRITER]))
    choice: Any = draw(st.sampled_from(["auto", "auto", "none"]))
    if draw(st.booleans()):
        return graph.plan(name, agent, tool_choice=choice)
    return graph.replan(name, agent, labels=Literal["go", "answer"], tool_choice=choice)


@settings(max_examples=300)
@given(graphs())
def test_whatever_compiles_can_end_from_every_node_by_what_the_run_would_ask(graph: Graph) -> None:
    try:
        compiled = compile(graph)
    except GraphError:
        return
    ways = nx.DiGraph([(node, target) for node in compiled.nodes for target in _ways(compiled, node)])
    for node in {compiled.start} | nx.descendants(ways, compiled.start) - {END}:
        assert nx.has_path(ways, node, END)
    assert {compiled.start} | nx.descendants(ways, compiled.start) == {*compiled.nodes, END}


def _ways(graph: CompiledGraph[Any, Any], name: str) -> list[str]:
    """Targets by the run's own questions, which is not how compiling finds them."""
    if graph.nodes[name].agent is None:
        return [graph.after(name)]
    if graph.nodes[name].labels:
        return [graph.after_generation(name, label, shape == "calls") for label, shape in graph.label_shapes(name)]
    outcomes = [(True, graph.can_call(name)), (False, graph.may_answer(name))]
    return [graph.after_generation(name, None, has_calls) for has_calls, allowed in outcomes if allowed]


def pair(expected: dict[str, float] | None = None) -> CompiledGraph[Any, Any]:
    graph = Graph("pair")
    plan, act = graph.plan("plan", AGENT), graph.tool("act")
    decide = graph.replan("decide", AGENT, labels=Literal["again", "write", "answer"])
    write = graph.replan("write", WRITER)
    graph.path(START, plan, act, graph.observe("observe"), decide)
    graph.route(decide, {"again": act, "write": write, "answer": END})
    graph.path(write, END)
    if expected is not None:
        graph.expect(decide, expected)
    return compile(graph)


@pytest.mark.parametrize(
    ("expected", "chances"),
    [
        (None, {"decide": 1 / 3, "write": 1 / 3, END: 1 / 3}),
        ({"write": 0.5}, {"decide": 0.25, "write": 0.5, END: 0.25}),
        ({"write": 0.5, "again": 0.5}, {"decide": 0.5, "write": 0.5, END: 0.0}),
        ({"write": 0.1, "again": 0.1, "answer": 0.2}, {"decide": 0.25, "write": 0.25, END: 0.5}),
        ({"write": 0, "again": 0, "answer": 0}, {"decide": 1 / 3, "write": 1 / 3, END: 1 / 3}),
    ],
)
def test_what_comes_next_is_as_likely_as_declared(expected: dict[str, float] | None, chances: dict[str, float]) -> None:
    graph = pair(expected)
    assert graph.onward("decide") == pytest.approx(chances)
    assert graph.onward("act") == graph.onward("observe") == {"decide": 1.0}
    assert graph.onward("plan") == pytest.approx({"decide": 0.5, END: 0.5})
    assert [agent.name for agent in graph.asked_at("write")] == ["writer"]
    assert graph.asked_at(END) == ()
    assert graph.several
    assert not standard_graph(AGENT).several


def test_the_digest_covers_what_is_expected() -> None:
    assert len({pair().digest, pair({"write": 0.5}).digest, pair({"write": 0.6}).digest}) == 3


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ({"sing": 0.5}, "node 'decide' has no label 'sing'; its labels are 'again', 'write', 'answer'"),
        ({"write": 1.5}, "node 'decide': the chance 1.5 of label 'write' must be from 0 to 1"),
        ({"write": float("nan")}, "the chance nan of label 'write' must be"),
        ({"write": True}, "the chance True of label"),
        (
            {"write": 0.7, "again": 0.7},
            "node 'decide': the chances of its labels add up to 1.4; they must not exceed 1",
        ),
    ],
)
def test_chances_that_cannot_be_are_refused(expected: dict[str, float], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        pair(expected)
