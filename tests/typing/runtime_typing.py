"""Checked by mypy, never run: what a type checker knows about runs, and what it refuses.

Each refusal stands under the error code that it must have; an ignore without an error is an error itself.
"""

from typing import Literal, assert_type

from attrs import frozen

import agentkv as akv


@frozen
class Deps:
    url: str


@frozen
class OtherDeps:
    pass


@frozen
class Answer:
    text: str


@akv.tool
async def look_up(ctx: akv.Context[Deps], order: str) -> str:
    """Look an order up."""
    return f"{ctx.deps.url}/{order}"


plain = akv.Agent("plain", instructions="")
support = akv.Agent("support", instructions="", tools=[look_up], deps=Deps, output=Answer)

graph = akv.Graph("graph", deps=Deps, output=Answer)
plan, act = graph.plan("plan", support), graph.tool("act")
replan = graph.replan("replan", support, labels=Literal["continue", "answer"])
graph.path(akv.START, plan, act, replan)
graph.route(replan, {"continue": act, "answer": akv.END})
graph.route(replan, {"continue": act, "done": akv.END})  # type: ignore[dict-item]


async def runs(rt: akv.Runtime) -> None:
    assert_type(await rt.run(plain, "Hi"), akv.Result[str])
    assert_type(await rt.run(support, "Hi", deps=Deps("x")), akv.Result[Answer])
    assert_type((await rt.run(graph, "Hi", deps=Deps("x"), limits=akv.Limits(steps=3))).output, Answer)
    async with rt.start(support, "Hi", deps=Deps("x")) as run:
        assert_type(run, akv.Run[Answer])
        async for event in run:
            assert_type(event, akv.RunEvent)
        assert_type(await run.result(), akv.Result[Answer])
    await rt.run(support, "Hi", deps=OtherDeps())  # type: ignore[misc]
    await rt.run(support, "Hi")  # type: ignore[arg-type]
    await rt.run(graph, "Hi", deps=OtherDeps())  # type: ignore[misc]
    await rt.run(plain, "Hi", limit=akv.Limits())  # type: ignore[call-overload]


async def chains(rt: akv.Runtime) -> None:
    chain = rt.chain(support)
    assert_type(chain, akv.AgentChain)
    chain.append("Hi", akv.Message(role="user", content="Hi"))
    chain.append(3)  # type: ignore[arg-type]
    assert_type(await chain.generate(max_tokens=3), akv.Generated)
    assert_type(chain.fork(), akv.AgentChain)
    assert_type(await chain.prefill(), int)


def sync() -> None:
    assert_type(akv.run_sync(support, "Hi", deps=Deps("x")), akv.Result[Answer])
    assert_type(akv.run_sync(plain, "Hi", engine="sim"), akv.Result[str])
    akv.run_sync(support, "Hi", deps=OtherDeps())  # type: ignore[misc]
    akv.Agent("wrong", instructions="", tools=[look_up], deps=OtherDeps)  # type: ignore[misc]
