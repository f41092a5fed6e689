"""Checked by mypy, never run: what a type checker knows about agents and graphs, and what it refuses.

Each refusal stands under the error code that it must have; an ignore without an error is an error itself.
"""

from enum import StrEnum
from typing import Literal, assert_type

from attrs import frozen

from agentkv.graph import END, START, Agent, CompiledGraph, Graph, Replan, compile, standard_graph
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
    decide = graph.replan("decide", agent, labels=Way)
    assert_type(decide, Replan[Way])
    graph.route(decide, {Way.AGAIN: act, Way.DONE: END})
    graph.route(decide, {"again": act})  # type: ignore[dict-item]
    graph.path(START, plan, act, replan)
    graph.path(plan, "act")  # type: ignore[arg-type]
    graph.tool("late", order="sometimes")  # type: ignore[arg-type]
    graph.plan("none", agent, tool_choice="never")  # type: ignore[arg-type]
