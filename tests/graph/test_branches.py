"""Forks, spawns and joins: what a declaration refuses by itself, what compiling refuses, and how they are drawn."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from agentkv.config import Limits
from agentkv.errors import GraphError
from agentkv.graph import (
    END,
    START,
    Agent,
    Branches,
    CompiledGraph,
    Graph,
    Join,
    all_of,
    compile,
    first,
    label_branches,
    summary,
    winner,
)
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
WRITER = Agent("writer", instructions="write")
WAYS = {"cheap": "Cheapest.", "safe": "Safest."}


def declared(build: Callable[[Graph], Any]) -> CompiledGraph[Any, Any]:
    graph = Graph("g")
    build(graph)
    return compile(graph)


def forked(strategy: Any, **options: Any) -> Callable[[Graph], None]:
    def build(g: Graph) -> None:
        plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS, **options)
        g.path(START, plan, ways)
        g.path(g.join("best", ways, strategy), END)

    return build


def test_branches_have_labels_and_texts() -> None:
    g = Graph("g")
    assert g.fork("a", WAYS).declared == (("cheap", "Cheapest."), ("safe", "Safest."))
    assert g.fork("b", ["One.", "Two."]).declared == (("1", "One."), ("2", "Two."))
    assert g.spawn("c", WRITER, over=["x", "y"], prompt="About {}.".format).declared == (
        ("x", "About x."),
        ("y", "About y."),
    )
    assert g.spawn("d", WRITER, over=[1, 2], prompt=str).declared == (("1", "1"), ("2", "2"))
    assert g.spawn("e", WRITER, over=["x", "x"], prompt=str).declared == (("1", "x"), ("2", "x"))
    late = g.fork("f", over=lambda given: given, prompt=str, limit=3)
    assert (late.declared, late.most) == ((), 3)


def test_labels_are_lines_or_numbers() -> None:
    assert label_branches(["a", "b"], named=True) == ["a", "b"]
    assert label_branches(["a", "b"], named=False) == ["1", "2"]
    assert label_branches(["2", 7], named=True) == ["1", "2"]
    assert label_branches(["a\nb"], named=True) == ["1"]
    assert label_branches(["TCP/IP", "UDP"], named=True) == ["1", "2"]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda g: g.fork("ways"), "node 'ways': give its branches, or over="),
        (lambda g: g.fork("ways", WAYS, over=list, prompt=str), "node 'ways': give its branches, or over="),
        (lambda g: g.fork("ways", over=list), "node 'ways': over= needs prompt="),
        (lambda g: g.fork("ways", over=5, prompt=str), "node 'ways': over=5 must be a function"),
        (lambda g: g.fork("ways", over=list, prompt=5), "node 'ways': prompt=5 must be a function"),
        (lambda g: g.fork("ways", WAYS, tools=5), "node 'ways': tools=5 must be a list of tools"),
        (lambda g: g.fork("ways", WAYS, body=5), "node 'ways': body=5 must be an akv.Graph"),
        (lambda g: g.fork("ways", over=list, prompt=str, limit=0), "node 'ways': limit=0"),
        (lambda g: g.fork("ways", "xy"), "node 'ways': branches='xy' must be a mapping or a list"),
        (lambda g: g.fork("ways", 5), "node 'ways': branches=5 must be a mapping or a list"),
        (lambda g: g.fork("ways", {}), "node 'ways' has no branches"),
        (lambda g: g.fork("ways", {"": "x"}), "node 'ways': label '' must be"),
        (lambda g: g.fork("ways", {"a\nb": "x"}), "node 'ways': label .* must be"),
        (lambda g: g.fork("ways", {"a/b": "x"}), "node 'ways': label 'a/b' must be"),
        (lambda g: g.fork("ways", {"a": " "}), "node 'ways': branch 'a' has ' ' for its text"),
        (lambda g: g.fork("ways", ["x", "y"], limit=1), "node 'ways' has 2 branches, above its limit=1"),
        (lambda g: g.fork("ways", WAYS, on_error="ignore"), "node 'ways': on_error='ignore'"),
        (lambda g: g.fork("ways", WAYS, agent="agent"), "node 'ways': 'agent' is not an Agent"),
        (lambda g: g.fork("ways", WAYS, limits=3), "node 'ways': limits=3"),
        (lambda g: g.fork("ways", WAYS, tools=[], body=Graph("b")), "node 'ways': tools= is for the agent's loop"),
        (lambda g: g.spawn("subs", 7, over=["a"], prompt=str), "node 'subs': 7 is not an Agent"),
        (lambda g: g.join("best", None, first()), "join 'best' has no source"),
        (lambda g: g.join("best", g.plan("plan", AGENT), first()), "join 'best' has no source"),
        (lambda g: g.join("best", g.fork("ways", WAYS), "first"), "join 'best': 'first' is no strategy"),
        (lambda g: g.join("best", Graph("h").fork("ways", WAYS), first()), "'ways' is not a node of this graph"),
        (
            lambda g: g.join("best", g.spawn("subs", AGENT, over=["a"], prompt=str), first()),
            "join 'best': the agents of 'subs' have no chain in common",
        ),
        (lambda g: g.join("best", g.fork("ways", WAYS), all_of(at_least=3)), "join 'best': at_least=3 is more than"),
        (lambda g: winner(), "a judge or a choose function"),  # type: ignore[call-overload]
        (lambda g: winner(judge="critic"), "winner.judge='critic'"),  # type: ignore[call-overload]
        (lambda g: winner(choose="cheap"), "winner.choose='cheap'"),  # type: ignore[call-overload]
        (lambda g: all_of(at_least=0), r"all_of\(\): at_least=0"),
        (lambda g: all_of(timeout=0), r"all_of\(\): timeout=0"),
        (lambda g: all_of(on_error="raise"), r"all_of\(\): on_error='raise'"),  # type: ignore[arg-type]
        (lambda g: all_of(order="random"), r"all_of\(\): order='random'"),  # type: ignore[arg-type]
        (lambda g: summary("critic"), "summary.'critic'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_declaration_names_node_and_option(declare: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        declare(Graph("g"))


def test_a_fork_runs_the_loop_of_the_agent_before_it() -> None:
    graph = declared(forked(first()))
    assert list(graph.bodies["ways"].nodes) == ["plan", "act", "observe", "replan"]
    assert graph.bodies["ways"].agents == (AGENT,)
    assert graph.join_of("ways").name == "best"
    assert graph.breadth == 2


def test_a_fork_without_tools_is_one_generation() -> None:
    assert list(declared(forked(first(), tools=())).bodies["ways"].nodes) == ["plan"]


def test_a_graph_may_be_the_body_of_a_branch() -> None:
    inner = Graph("inner")
    forked(all_of())(inner)
    assert declared(forked(all_of(), body=inner)).breadth == 4


def test_a_join_knows_who_judges_and_who_sums_up() -> None:
    critic = Agent("critic", instructions="Judge.")
    judged = declared(forked(winner(judge=critic)))
    assert judged.bodies["best"].nodes["judge"].labels == ("cheap", "safe")
    assert list(declared(forked(summary(critic))).bodies["best"].nodes) == ["plan"]
    assert "best" not in declared(forked(winner(choose=min))).bodies


def test_a_node_may_judge() -> None:
    def build(g: Graph) -> None:
        judge = g.replan("judge", WRITER, labels=Literal["cheap", "safe"], instruction="Which?", max_tokens=9)
        forked(winner(judge=judge))(g)

    graph = declared(build)
    node = graph.bodies["best"].nodes["judge"]
    assert (node.instruction, node.max_tokens, node.labels) == ("Which?", 9, ("cheap", "safe"))
    assert graph.agents == (AGENT,)


def no_join(g: Graph) -> None:
    g.path(START, g.plan("plan", AGENT), g.fork("ways", WAYS))


def two_joins(g: Graph) -> None:
    plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS)
    g.path(START, plan, ways)
    g.path(g.join("one", ways, first()), END)
    g.path(g.join("two", ways, first()), END)


def join_without_way_on(g: Graph) -> None:
    plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS)
    g.path(START, plan, ways)
    g.join("best", ways, first())


def around_the_join(g: Graph) -> None:
    plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS)
    g.path(START, plan, ways, END)
    g.path(g.join("best", ways, first()), END)


def past_the_fork(g: Graph) -> None:
    plan, ways = g.plan("plan", WRITER), g.fork("ways", WAYS)
    best = g.join("best", ways, first())
    g.path(START, plan, best, END)


def nobody_before(g: Graph) -> None:
    ways = g.fork("ways", WAYS)
    g.path(START, ways)
    g.path(g.join("best", ways, first()), END)


def two_before(g: Graph) -> None:
    plan, ways = g.replan("plan", WRITER, labels=Literal["on", "over"]), g.fork("ways", WAYS)
    over = g.plan("over", AGENT)
    g.path(START, plan)
    g.route(plan, {"on": ways, "over": over})
    g.path(over, ways)
    g.path(g.join("best", ways, first()), END)


def unreachable(g: Graph) -> None:
    g.path(START, g.plan("plan", WRITER))
    g.path(g.join("best", g.fork("ways", WAYS, agent=WRITER), first()), END)


def tool_behind_a_join(g: Graph) -> None:
    plan, ways = g.plan("plan", WRITER), g.fork("ways", WAYS)
    g.path(START, plan, ways)
    g.path(g.join("best", ways, first()), g.tool("act"), END)


def other_labels(g: Graph) -> None:
    forked(winner(judge=g.replan("judge", WRITER, labels=Literal["cheap", "fast"])))(g)


def judge_on_the_way(g: Graph) -> None:
    judge = g.replan("judge", WRITER, labels=Literal["cheap", "safe"])
    plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS)
    g.path(START, plan, ways)
    g.path(g.join("best", ways, winner(judge=judge)), judge)


def judge_of_another_graph(g: Graph) -> None:
    forked(winner(judge=Graph("h").replan("judge", WRITER, labels=Literal["cheap", "safe"])))(g)


def other_output(g: Graph) -> None:
    lister = Agent("lister", instructions="", output=list[int])
    plan, ways = g.plan("plan", WRITER), g.fork("ways", WAYS, agent=lister)
    g.path(START, plan, ways)
    g.path(g.join("best", ways, first()), END)


def unequal_agents(g: Graph) -> None:
    subs = g.spawn("subs", Agent("agent", instructions="else"), over=["a"], prompt=str)
    g.path(START, g.plan("plan", AGENT), subs)
    g.path(g.join("report", subs, all_of()), END)


def needs_deps(g: Graph) -> None:
    subs = g.spawn("subs", Agent("sub", instructions="", deps=int), over=["a"], prompt=str)  # type: ignore[arg-type]
    g.path(START, g.plan("plan", AGENT), subs)
    g.path(g.join("report", subs, all_of()), END)


def within_itself(g: Graph) -> None:
    forked(all_of(), body=g)(g)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (no_join, "fork 'ways' needs exactly one join .found none"),
        (two_joins, "fork 'ways' needs exactly one join .found 'one', 'two'"),
        (join_without_way_on, "join 'best' needs exactly one node after it .found none"),
        (around_the_join, "fork 'ways' leads to its join 'best', not to 'END'"),
        (past_the_fork, "join 'best' follows 'plan', but its source is 'ways'"),
        (nobody_before, r"fork 'ways' follows START: say whose chain it forks with fork\(..., agent=...\)"),
        (two_before, "fork 'ways' follows 'writer', 'agent': say whose"),
        (unreachable, "node 'ways' can never be reached"),
        (tool_behind_a_join, "tool node 'act' follows 'best', which makes no calls"),
        (forked(first(), tools=[other]), "fork 'ways': agent 'agent' has no tool 'other'"),
        (other_labels, "node 'judge' judges 'ways', so its labels must be 'cheap', 'safe'"),
        (judge_on_the_way, "node 'judge' is the judge of 'best'; no path may lead to it"),
        (judge_of_another_graph, "join 'best': its judge 'judge' is not a node of this graph"),
        (other_output, r"node 'best' ends the run with list\[int\]"),
        (unequal_agents, "nodes 'plan' and 'subs>plan' have different agents named 'agent'"),
        (needs_deps, "node 'subs>plan': agent 'sub' needs int"),
        (within_itself, "runs in a branch of itself"),
    ],
)
def test_compiling_refuses_with_the_node_at_fault(build: Callable[[Graph], None], message: str) -> None:
    with pytest.raises(GraphError, match=f"graph 'g': .*{message}"):
        declared(build)


def test_a_spawn_that_is_sure_to_come_is_known_beforehand() -> None:
    def spawned(g: Graph, **options: Any) -> Branches:
        subs = g.spawn("subs", WRITER, over=["a", "b"], prompt=str)
        g.path(START, g.plan("plan", AGENT, **options), subs)
        g.path(g.join("report", subs, all_of()), END)
        return subs

    graph = Graph("g")
    subs = spawned(graph, tool_choice="none")
    assert compile(graph).next_spawns("plan") == (subs,)
    assert compile(graph).next_agents("plan") == ()
    unsure = Graph("g")
    spawned(unsure)
    unsure.path(unsure._nodes["plan"], unsure.tool("act"), END)
    assert compile(unsure).next_spawns("plan") == ()


def test_the_agent_of_a_fork_comes_next() -> None:
    def build(g: Graph) -> None:
        plan, act, ways = g.plan("plan", AGENT), g.tool("act"), g.fork("ways", WAYS)
        g.path(START, plan, act, ways)
        g.path(g.join("best", ways, first()), END)

    assert declared(build).next_agents("act") == (AGENT,)


def test_the_digest_covers_branches_and_joins() -> None:
    digests = [
        declared(build).digest
        for build in (
            forked(first()),
            forked(all_of()),
            forked(all_of(at_least=1)),
            forked(winner(choose=min)),
            forked(winner(choose=max)),
            forked(winner(judge=WRITER)),
            forked(summary(WRITER)),
            forked(first(), tools=()),
            forked(first(), on_error="drop"),
            forked(first(), limits=Limits(steps=3)),
        )
    ]
    assert len(set(digests)) == len(digests)
    assert declared(forked(first())).digest == digests[0]


def test_branches_are_drawn() -> None:
    def build(g: Graph) -> None:
        judge = g.replan("judge", WRITER, labels=Literal["cheap", "safe"])
        plan, ways = g.plan("plan", AGENT), g.fork("ways", WAYS)
        best = g.join("best", ways, winner(judge=judge))
        subs = g.spawn("subs", WRITER, over=lambda given: given, prompt=str, limit=4)
        g.path(START, plan, ways)
        g.path(best, subs)
        g.path(g.join("report", subs, all_of()), END)

    drawn = str(declared(build)).splitlines()
    ids = {line.strip().split("[")[0].split("{")[0]: line.strip() for line in drawn if "n" in line[:6] and '"' in line}
    assert ids["n2"] == 'n2[/"ways"\\]'
    assert ids["n3"] == 'n3[\\"best"/]'
    for line in ('n2 -->|"cheap"| n3', 'n2 -->|"safe"| n3', "n0 -.->|judges| n3", 'n4 -->|"up to 4"| n5'):
        assert f"    {line}" in drawn


def test_a_join_is_a_node_with_its_source() -> None:
    g = Graph("g")
    join = g.join("best", g.fork("ways", WAYS), first())
    assert isinstance(join, Join)
    assert (join.source, join.adopts) == ("ways", True)


def test_branches_are_within_each_other_to_a_bounded_depth() -> None:
    def within(levels: int) -> Graph[None, str]:
        graph = Graph("innermost")
        graph.path(START, graph.plan("plan", Agent("a", instructions="x")), END)
        for level in range(levels):
            outer = Graph(f"level{level}")
            ways = outer.fork("ways", {"on": "Go on."}, agent=Agent("a", instructions="x"), body=graph)
            outer.path(START, ways)
            outer.path(outer.join("join", ways, first()), END)
            graph = outer
        return graph

    assert compile(within(3)).name == "level2"
    with pytest.raises(GraphError, match="is in branches of branches, more than 100 deep; let a branch end"):
        compile(within(2_000))
