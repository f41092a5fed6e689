"""The standard loop: plan, act, observe, replan."""

from typing import Literal

import anyio
import pytest

import agentkv as akv
from agentkv.store import MemoryStore
from agentkv.testing import call, calls, label, say

from .conftest import Open, check_journal


@akv.tool
async def double(n: int) -> int:
    """Twice n."""
    return 2 * n


@akv.tool
async def slow(ctx: akv.Context[None], n: int) -> str:
    """Comes late."""
    await ctx.sleep(5)
    return f"slow {n}"


@akv.tool(sequential=True)
async def alone(ctx: akv.Context[None], n: int) -> str:
    """Runs by itself."""
    await ctx.sleep(1)
    return f"alone {n}"


agent = akv.Agent("counter", instructions="Count.", tools=[double, slow, alone])


def results(result: akv.Result[str]) -> list[str]:
    return [message.content for message in result.messages if message.role == "tool"]


async def test_a_call_and_an_answer(runtime: Open, store: MemoryStore) -> None:
    async with runtime([call("double", n=4), say("It is 8.")]) as rt, rt.start(agent, "Twice four?") as run:
        result = await run.result()
        assert result.output == "It is 8."
        assert result.complete
        assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
        assert results(result) == ["8"]
        assert result.id == run.id
        await check_journal(store, run)


async def test_no_tools_is_one_generation(runtime: Open) -> None:
    async with runtime([say("Hello.")]) as rt:
        result = await rt.run(akv.Agent("a", instructions="Greet."), "Hi")
    assert result.output == "Hello."
    assert len(result.kv.steps) == 1


async def test_parallel_results_stand_in_call_order(runtime: Open) -> None:
    async with runtime([calls(call("slow", n=1), call("double", n=2)), say("ok")]) as rt:
        result = await rt.run(agent, "Go")
    assert results(result) == ["slow 1", "4"]


async def test_arrival_order_is_kept_and_replayed(runtime: Open, store: MemoryStore) -> None:
    graph = akv.Graph("arrivals")
    plan, act, replan = graph.plan("plan", agent), graph.tool("act", order="arrival"), graph.replan("replan", agent)
    graph.path(akv.START, plan, act, replan, act)
    script = [calls(call("slow", n=1), call("double", n=2)), say("ok")]
    async with runtime(script) as rt, rt.start(graph, "Go") as run:
        assert results(await run.result()) == ["4", "slow 1"]
        await check_journal(store, run)


async def test_parallel_calls_overlap_and_a_sequential_tool_is_a_barrier(runtime: Open) -> None:
    script = [calls(call("slow", n=1), call("alone", n=2), call("slow", n=3), call("slow", n=4)), say("ok")]
    async with runtime(script) as rt, rt.start(agent, "Go") as run:
        started = {event.index: event.at async for event in run if event.type == "call_started"}
        result = await run.result()
    assert results(result) == ["slow 1", "alone 2", "slow 3", "slow 4"]
    assert started[1] - started[0] == pytest.approx(5)
    assert started[2] - started[1] == pytest.approx(1)
    assert started[3] == started[2]


async def test_max_concurrency(runtime: Open) -> None:
    graph = akv.Graph("narrow")
    plan, act, replan = graph.plan("plan", agent), graph.tool("act", max_concurrency=1), graph.replan("replan", agent)
    graph.path(akv.START, plan, act, replan, act)
    async with runtime([calls(call("slow", n=1), call("slow", n=2)), say("ok")]) as rt, rt.start(graph, "Go") as run:
        started = [event.at async for event in run if event.type == "call_started"]
    assert started[1] - started[0] == pytest.approx(5)


async def test_labels_choose_the_way(runtime: Open) -> None:
    graph = akv.Graph("labels")
    plan, act = graph.plan("plan", agent, tool_choice="required"), graph.tool("act")
    replan = graph.replan("replan", agent, labels=Literal["continue", "escalate", "answer"])
    human = graph.replan("human", agent, instruction="Write to a human.", tool_choice="none")
    graph.path(akv.START, plan, act, replan)
    graph.route(replan, {"continue": act, "escalate": human, "answer": akv.END})
    graph.path(human, akv.END)
    script = [call("double", n=1), label("continue", call("double", n=2)), label("escalate", "Hm."), say("Dear human.")]
    async with runtime(script) as rt:
        result = await rt.run(graph, "Go")
    assert result.output == "Dear human."
    assert results(result) == ["2", "4"]
    assert [(step.node, step.visit) for step in result.kv.steps] == [
        ("plan", 1),
        ("replan", 1),
        ("replan", 2),
        ("human", 1),
    ]
    assert any(message.role == "user" and message.content == "Write to a human." for message in result.messages)


async def test_an_observe_node_renders_each_result(runtime: Open) -> None:
    graph = akv.Graph("observing")
    plan, act, replan = graph.plan("plan", agent), graph.tool("act"), graph.replan("replan", agent)
    observe = graph.observe("observe", render=lambda result: f"{result.name} said {result.text}")
    graph.path(akv.START, plan, act, observe, replan, act)
    async with runtime([call("double", n=3), say("ok")]) as rt:
        assert results(await rt.run(graph, "Go")) == ["double said 6"]


async def test_two_agents_share_a_conversation(runtime: Open, store: MemoryStore) -> None:
    critic = akv.Agent("critic", instructions="Judge harshly.")
    graph = akv.Graph("pair")
    plan, act, judge = graph.plan("plan", agent), graph.tool("act"), graph.replan("judge", critic)
    graph.path(akv.START, plan, act, judge, akv.END)
    script = [call("double", n=3), say("Fair enough.")]
    async with runtime(script) as rt, rt.start(graph, "Go") as run:
        result = await run.result()
        assert result.output == "Fair enough."
        assert [step.agent for step in result.kv.steps] == ["counter", "critic"]
        await check_journal(store, run)


async def test_events_come_in_order(runtime: Open) -> None:
    async with runtime([call("double", n=4), say("It is 8.")]) as rt, rt.start(agent, "Twice four?") as run:
        seen = [event async for event in run]
    kinds = [event.type for event in seen if event.type not in ("text_delta", "prefetched")]
    assert kinds == [
        "run_started",
        "generation_asked",
        "generation_finished",
        "call_started",
        "call_finished",
        "generation_asked",
        "generation_finished",
        "run_finished",
    ]
    text = "".join(event.text for event in seen if event.type == "text_delta" and event.node == "replan")
    assert text.startswith("It is 8.")


async def test_what_is_left_of_a_run_that_is_not_awaited_ends_with_its_context(runtime: Open) -> None:
    async with runtime([call("slow", n=4), say("ok")]) as rt:
        async with rt.start(agent, "Go") as run:
            pass
        with pytest.raises(akv.RunCancelled, match=run.id):
            await run.result()


async def test_an_outer_cancellation_ends_the_run(runtime: Open, store: MemoryStore) -> None:
    async with runtime([call("slow", n=4), say("ok")]) as rt:
        with anyio.CancelScope() as scope:
            async with rt.start(agent, "Go") as run:
                async for event in run:
                    if event.type == "call_started":
                        scope.cancel()
        assert run.state.end is not None
        assert run.state.end.type == "run_cancelled"
        assert [message.content for message in run.state.messages if message.role == "tool"] == [
            "The call was cancelled."
        ]
        await check_journal(store, run)
