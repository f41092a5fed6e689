"""Journals that others wrote: whichever way one fails, a run ends in order and gives back what it holds."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

import agentkv as akv
from agentkv.errors import EngineUnavailable, StoreError
from agentkv.follow import Way
from agentkv.kv import PolicySettings
from agentkv.store import MemoryStore, opened
from agentkv.testing import Script, call, say

from .conftest import Open, check_idle, managed_sim


@akv.tool
async def look(ctx: akv.Context[None], n: int) -> str:
    """Look."""
    await ctx.sleep(n)
    return "There it is. " * 40


clerk = akv.Agent("clerk", instructions="You help. " * 20, tools=[look])


class Failing(MemoryStore):
    """Takes ``most`` events, and then fails as databases do."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    async def append(self, run_id: str, seq: int, event: Mapping[str, Any]) -> None:
        if seq >= self.most:
            raise OSError("the disk is gone")
        await super().append(run_id, seq, event)


@pytest.mark.parametrize("most", range(8))
async def test_a_run_ends_in_order_when_its_journal_fails_at_any_event(most: int) -> None:
    engine = managed_sim([call("look", n=2), say("Here.")], PolicySettings(), {})
    async with akv.Runtime(engine, store=Failing(most)) as rt:
        async with rt.start(clerk, "Go") as run:
            with pytest.raises(StoreError, match=r"Failing.append\(\) of event \d of run .*OSError: the disk is gone"):
                await run.result()
        assert run.report.outcome == "run_failed"
        await check_idle(rt)


class Uncounted(MemoryStore):
    async def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        raise OSError("no table")


async def test_counts_that_cannot_be_kept_cost_no_answer() -> None:
    graph = akv.Graph("two")
    first, act = graph.plan("first", clerk), graph.tool("act")
    last = graph.replan("last", akv.Agent("other", instructions="You end. " * 20), tool_choice="none")
    graph.path(akv.START, first, act, last)
    engine = managed_sim([call("look", n=2), say("Here.")], PolicySettings(), {})
    async with akv.Runtime(engine, store=Uncounted()) as rt:
        assert (await rt.run(graph, "Go")).output == "Here."


async def test_a_store_of_two_runtimes_is_open_until_both_are_closed() -> None:
    store = MemoryStore()
    script = Script(lambda prompt, tag: say("Here."))
    async with akv.Runtime(managed_sim(script, None, {}), store=store) as outer:
        async with akv.Runtime(managed_sim(script, None, {}), store=store) as inner:
            assert (await inner.run(clerk, "Go")).output == "Here."
        assert (await outer.run(clerk, "Go")).output == "Here."
        assert len(await store.runs()) == 2
    with pytest.raises(StoreError, match="not open"):
        await store.runs()


class Opened(MemoryStore):
    """Opens for whoever comes first; the others fail once ``gate`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.opens, self.closes = anyio.Event(), 0, 0

    async def open(self) -> None:
        self.opens += 1
        if self.opens > 1:
            await self.gate.wait()
            raise OSError("too many")
        await super().open()

    async def aclose(self) -> None:
        self.closes += 1
        await super().aclose()


async def test_a_store_is_closed_by_who_leaves_it_last_even_if_that_one_could_not_open_it() -> None:
    store = Opened()

    async def second() -> None:
        with pytest.raises(StoreError, match="too many"):
            async with opened(store):
                pass

    async with anyio.create_task_group() as tasks:
        async with opened(store) as first:
            tasks.start_soon(second)
            await anyio.wait_all_tasks_blocked()
        assert (await first.runs(), store.closes) == ([], 0)
        store.gate.set()
    assert store.closes == 1


async def test_a_run_is_refused_that_begins_behind_its_runtime_s_end() -> None:
    store, engine = MemoryStore(), managed_sim(Script(lambda prompt, tag: say("Here.")), PolicySettings(), {})
    async with engine, akv.Runtime(engine, store=store):
        async with akv.Runtime(engine, store=store) as inner:
            run = inner.start(clerk, "Go")
        with pytest.raises(EngineUnavailable, match="the runtime was closed"):
            await run.__aenter__()
        assert await store.runs() == []


class Declined(akv.ToolError):
    """An error that a user derives from one of ours."""


async def test_an_error_of_a_derived_class_is_of_the_class_it_derives_from(runtime: Open) -> None:
    @akv.tool(name="look")
    async def pay(n: int) -> str:
        """Pay."""
        raise Declined(f"no credit for {n}")

    async with runtime([call("look", n=2), say("Here.")]) as rt:
        with pytest.raises(akv.ToolError, match="no credit for 2"):
            await rt.run(akv.Agent("clerk", instructions="You pay.", tools=[pay]), "Go")
