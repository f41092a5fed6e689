"""Checked by mypy, never run: what a type checker knows about agents and graphs, and what it refuses.

Each refusal stands under the error code that it must have; an ignore without an error is an error itself.
"""

from enum import StrEnum
from typing import Any, Literal, assert_type

from attrs import frozen

from agentkv.graph import (
    END,
    START,
    Agent,
    Branches,
    CompiledGraph,
    Graph,
    Node,
    Replan,
    Winner,
    all_of,
    compile,
    standard_graph,
    winner,
)
from agentkv.tools import Context, tool


@frozen
class Deps:
    url: str


@frozen
class MoreDeps(Deps):
    key: str


@frozen
class OtherDeps:
    pass


@frozen
class Answer:
    text: str


class Way(StrEnum):
    AGAIN = "again"
    DONE = "done"


@tool
async def look_up(ctx: Context[Deps], order: str) -> str:
    """Look an order up."""
    return f"{ctx.deps.url}/{order}"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agents() -> None:
    assert_type(Agent("a", instructions=""), Agent[None, str])
    assert_type(Agent("a", instructions="", output=Answer), Agent[None, Answer])
    assert_type(Agent("a", instructions="", deps=Deps), Agent[Deps, str])
    assert_type(Agent("a", instructions="", output=list[int]), Agent[None, list[int]])
    assert_type(Agent("a", instructions="", output=Literal["yes", "no"]), Agent[None, Literal["yes", "no"]])
    full = Agent("a", instructions="", tools=[look_up, add], deps=Deps, output=Answer)
    assert_type(full, Agent[Deps, Answer])
    assert_type(full.validate_output("{}"), Answer)
    assert_type(compile(Graph("g", deps=Deps, output=Answer)), CompiledGraph[Deps, Answer])
    assert_type(standard_graph(full), CompiledGraph[Deps, Answer])


def deps() -> None:
    needs_deps = Agent("a", instructions="", tools=[look_up], deps=Deps)
    Agent("a", instructions="", tools=[look_up, add], deps=MoreDeps)  # a tool is content with more than it needs
    Agent("a", instructions="", tools=[look_up], deps=OtherDeps)  # type: ignore[misc]
    Graph("g", deps=Deps).plan("plan", needs_deps)
    Graph("g", deps=MoreDeps).plan("plan", needs_deps)
    Graph("g", deps=Deps).plan("plan", Agent("b", instructions=""))
    Graph("g").plan("plan", needs_deps)  # type: ignore[arg-type]
    Graph("g", deps=OtherDeps).replan("replan", needs_deps)  # type: ignore[arg-type]


def labels() -> None:
    graph, agent = Graph("g"), Agent("a", instructions="", tools=[add])
    plan, act = graph.plan("plan", agent), graph.tool("act")
    replan = graph.replan("replan", agent, labels=Literal["continue", "answer"])
    assert_type(replan, Replan[Literal["continue", "answer"]])
    graph.route(replan, {"continue": act, "answer": END})
    graph.route(replan, {"continue": act, "wrong": END})  # type: ignore[dict-item]
    graph.route(replan, {"continue": "act"})  # type: ignore[dict-item]
    graph.route(plan, {"answer": replan})
    graph.route(plan, {"continue": act})  # type: ignore[dict-item]
    graph.route(act, {"answer": END})  # type: ignore[arg-type]
    graph.expect(replan, {"continue": 0.7})
    graph.expect(replan, {"wrong": 0.7})  # type: ignore[dict-item]
    graph.expect(replan, {"continue": "often"})  # type: ignore[dict-item]
    graph.expect(act, {"answer": 0.7})  # type: ignore[arg-type]
    decide = graph.replan("decide", agent, labels=Way)
    assert_type(decide, Replan[Way])
    graph.route(decide, {Way.AGAIN: act, Way.DONE: END})
    graph.route(decide, {"again": act})  # type: ignore[dict-item]
    graph.path(START, plan, act, replan)
    graph.path(plan, "act")  # type: ignore[arg-type]
    graph.tool("late", order="sometimes")  # type: ignore[arg-type]
    graph.plan("none", agent, tool_choice="never")  # type: ignore[arg-type]


def topics(given: Any) -> list[Answer]:
    return [Answer(str(given))]


def text_of(answer: Answer) -> str:
    return answer.text


def branches() -> None:
    graph, agent = Graph("g", deps=Deps), Agent("a", instructions="", tools=[add])
    needs_more = Agent("m", instructions="", deps=MoreDeps)
    options = graph.fork("options", {"cheap": "Cheapest.", "safe": "Safest."}, tools=[add], on_error="drop")
    assert_type(options, Branches)
    graph.fork("listed", ["One.", "Two."])
    graph.fork("late", over=topics, prompt=text_of, limit=4)
    graph.fork("late", over=topics, prompt=len)  # type: ignore[arg-type]
    graph.fork("late", {"cheap": 1})  # type: ignore[dict-item]
    graph.fork("late", ["One."], on_error="ignore")  # type: ignore[arg-type]
    graph.fork("late", ["One."], agent=needs_more)  # type: ignore[arg-type]
    graph.fork("late", ["One."], body=Graph("b", deps=Deps))
    graph.fork("late", ["One."], body=Graph("b", deps=MoreDeps))  # type: ignore[arg-type]
    notes = graph.spawn("notes", agent, over=[1, 2], prompt=str)
    graph.spawn("notes", Graph("b"), over=topics, prompt=text_of, limit=8)
    graph.spawn("notes", agent, over=[1, 2], prompt=text_of)  # type: ignore[misc]
    graph.spawn("notes", needs_more, over=[1, 2], prompt=str)  # type: ignore[arg-type]
    assert_type(graph.join("best", options, winner(judge=agent)), Node)
    graph.join("report", notes, all_of(at_least=3, timeout=60, on_error="collect"))
    graph.join("report", graph.tool("act"), all_of())  # type: ignore[arg-type]
    graph.join("report", notes, "all_of")  # type: ignore[arg-type]
    assert_type(winner(choose=min), Winner)
    winner(judge=agent, choose=min)  # type: ignore[call-overload]
    winner()  # type: ignore[call-overload]
    all_of(on_error="raise")  # type: ignore[arg-type]
    all_of(order="random")  # type: ignore[arg-type]
