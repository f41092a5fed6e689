"""Cancelling at any event leaves no task, no engine request, and a journal that replays."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentkv as akv
from agentkv.kv import PolicySettings
from agentkv.store import MemoryStore
from agentkv.testing import call, calls, say, sim

from .conftest import check_idle, check_journal, managed_sim


@akv.tool
async def quick(n: int) -> str:
    """At once."""
    return "quick " * (n * 40 + 1)


@akv.tool
async def slow(ctx: akv.Context[None], n: int) -> str:
    """Later."""
    await ctx.sleep(n)
    return f"slow {n}"


@akv.tool
def threaded(n: int) -> str:
    """In a thread."""
    return f"threaded {n}"


@akv.tool(sequential=True)
async def alone(ctx: akv.Context[None], n: int) -> str:
    """By itself."""
    await ctx.sleep(1)
    return f"alone {n}"


@akv.tool
async def failing(n: int) -> str:
    """Fails as told."""
    if n % 2:
        raise akv.ToolFailed("odd")
    raise ValueError("even")


TOOLS = [quick, slow, threaded, alone, failing]
agents = [
    akv.Agent("one", instructions="First. " * 20, tools=TOOLS),
    akv.Agent("two", instructions="Second. " * 20, tools=TOOLS),
]

one_call = st.builds(lambda tool, n: call(tool.name, n=n), st.sampled_from(TOOLS), st.integers(0, 3))
some_calls = st.lists(one_call, min_size=1, max_size=4).map(lambda made: calls(*made))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[akv.Graph[None, str], list[Any]]:
    """A random graph of rounds, and a script that walks it."""
    graph = akv.Graph("random")
    node: Any = graph.plan("start", draw(st.sampled_from(agents)))
    graph.path(akv.START, node)
    script: list[Any] = []
    rounds = draw(st.integers(0, 3))
    for number in range(rounds):
        tool = graph.tool(f"act{number}", order=draw(st.sampled_from(["call", "arrival"])))
        graph.path(node, tool)
        script.append(draw(some_calls))
        behind: Any = tool
        if draw(st.booleans()):
            observe = graph.observe(f"see{number}", render=lambda result: result.text.upper())
            graph.path(tool, observe)
            behind = observe
        node = graph.replan(f"next{number}", draw(st.sampled_from(agents)))
        graph.path(behind, node)
    script.append(say("The end."))
    return graph, script


@settings(max_examples=60)
@given(
    world=worlds(),
    at=st.integers(0, 40),
    mode=st.sampled_from(["bidirectional", "prefix", "off"]),
    managed=st.sampled_from([None, PolicySettings()]),
)
def test_cancel_at_any_event(
    world: tuple[akv.Graph[None, str], list[Any]], at: int, mode: Any, managed: PolicySettings | None
) -> None:
    graph, script = world

    async def main() -> None:
        store = MemoryStore()
        engine = managed_sim(script, managed, {})
        async with akv.Runtime(engine, store=store, kv=akv.KVConfig(kv_transfer_mode=mode)) as rt:
            before = asyncio.all_tasks()
            async with rt.start(graph, "Go") as run:
                seen = 0
                async for _ in run:
                    seen += 1
                    if seen > at:
                        run.cancel()
                await ended(run)
            assert asyncio.all_tasks() == before
            await check_idle(rt)
            await check_journal(store, run)
            check_conversation(run.state.messages)
            assert run.state.end is not None

    asyncio.run(main())


async def ended(run: akv.Run[str]) -> None:
    with suppress(akv.RunCancelled, akv.ToolError, akv.ModelOutputError):
        await run.result()


def check_conversation(messages: tuple[akv.Message, ...]) -> None:
    """Each call has exactly one result, right behind it."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            waiting.remove(message.call_id)
            continue
        assert not waiting
        waiting = [made.id for made in message.calls]
    assert not waiting


async def test_cancel_while_a_limit_strikes() -> None:
    store = MemoryStore()
    async with akv.Runtime(sim([call("slow", n=3), say("ok")]), store=store, limits=akv.Limits(seconds=2)) as rt:
        async with rt.start(agents[0], "Go") as run:
            with pytest.raises(akv.LimitExceeded):
                await run.result()
            run.cancel()
        await check_journal(store, run)
        await check_idle(rt)
