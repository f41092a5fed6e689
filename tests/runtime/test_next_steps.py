"""What a run is likely to ask for later is prefilled while tools run: by chances that are declared, then by history."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

import agentkv as akv
from agentkv.errors import StoreError
from agentkv.kv import PolicySettings
from agentkv.runtime import Runtime
from agentkv.store import MemoryStore
from agentkv.testing import call, label, say, sim

from .conftest import managed_sim

Open = Callable[..., AbstractAsyncContextManager[akv.Runtime]]
AHEAD = akv.KVConfig(kv_transfer_mode="bidirectional", anchor_ttl=0.5)
ONE_WAY = akv.KVConfig(kv_transfer_mode="prefix", anchor_ttl=0.5)
TURNS = 30


@akv.tool
async def look(ctx: akv.Context[None]) -> str:
    """Look it up; four seconds."""
    await ctx.sleep(4.0)
    return "Parcel 7 left Oslo on 3 May."


clerk = akv.Agent("clerk", instructions="You look before you speak. " * 4, tools=[look], max_tokens=32)
critic = akv.Agent("critic", instructions="You find what is wrong with answers. " * TURNS, max_tokens=32)
editor = akv.Agent("editor", instructions="You make answers short and kind. " * TURNS, max_tokens=32)


def desk(**expected: float) -> akv.Graph[None, str]:
    graph = akv.Graph("desk", output=str)
    plan, act = graph.plan("plan", clerk, tool_choice=[look]), graph.tool("act")
    decide = graph.replan("decide", clerk, labels=Literal["check", "edit", "answer"])
    check, edit = graph.replan("check", critic), graph.replan("edit", editor)
    graph.path(akv.START, plan, act, decide)
    graph.route(decide, {"check": check, "edit": edit, "answer": akv.END})
    graph.path(check, akv.END)
    graph.path(edit, akv.END)
    graph.expect(decide, expected)  # type: ignore[arg-type]  # keyword arguments are no literals
    return graph


def script(way: str) -> list[Any]:
    return [call("look"), label(way, "It left Oslo."), *([] if way == "answer" else [say("Good.")])]


async def ask(rt: Runtime, kv: akv.KVConfig = AHEAD, salt: str | None = None, **expected: float) -> akv.Result[str]:
    return await rt.run(desk(**expected), "Where is parcel 7?", kv=kv, cache_salt=salt)


def ahead(result: akv.Result[Any]) -> tuple[int, int]:
    """Tokens prefilled for next steps, and of these the used ones."""
    return next(((each.prefetched, each.used) for each in result.kv.sources if each.name == "next"), (0, 0))


async def fresh(runtime: Open, way: str, kv: akv.KVConfig = AHEAD, **expected: float) -> akv.Result[str]:
    async with runtime(script(way)) as rt:
        return await ask(rt, kv, **expected)


async def test_an_agent_that_history_leads_to_is_ready_when_it_is_asked(runtime: Open, store: MemoryStore) -> None:
    await store.open()
    await store.count("", akv.graph.compile(desk()).digest, {("plan", "decide"): 30, ("decide", "check"): 30})
    on, off = await fresh(runtime, "check"), await fresh(runtime, "check", ONE_WAY)
    assert on.messages == off.messages
    critics_on, critics_off = on.kv.steps[2], off.kv.steps[2]
    assert critics_off.computed > 200
    assert critics_on.prefilled >= len(critic.instructions) // 8
    assert critics_on.computed < 0.5 * critics_off.computed
    assert on.kv.ttft[2] < 0.5 * off.kv.ttft[2]
    prefetched, used = ahead(on)
    # The editor, whom no run asked for, was left alone.
    assert prefetched == used > 200


async def test_without_history_what_is_declared_counts(runtime: Open) -> None:
    result = await fresh(runtime, "edit", edit=0.9, check=0.05)
    prefetched, used = ahead(result)
    assert prefetched == used > 200
    assert result.kv.steps[2].prefilled >= used


async def test_a_wrong_step_costs_what_was_prefilled_for_it_and_holds_up_no_resume(runtime: Open) -> None:
    on, off = await fresh(runtime, "answer", check=1.0), await fresh(runtime, "answer", ONE_WAY)
    asked = await fresh(runtime, "check", ONE_WAY)
    prefetched, used = ahead(on)
    assert used == 0
    assert 200 < prefetched <= on.kv.totals.wasted
    # No more than the prompt that it is of.
    assert prefetched <= asked.kv.steps[2].prompt
    assert on.kv.ttft[1] <= off.kv.ttft[1] + 1e-6
    assert on.kv.spans[-1].end <= 1.03 * off.kv.spans[-1].end


@pytest.mark.parametrize("kv", [ONE_WAY, akv.KVConfig(branch_prefetch_limit=0)], ids=["one way", "no prefetches"])
async def test_nothing_is_prefilled_or_counted_where_nothing_is_to_be(
    runtime: Open, store: MemoryStore, kv: akv.KVConfig
) -> None:
    async with runtime(script("check")) as rt:
        result = await ask(rt, kv)
        assert ahead(result) == (0, 0)
        assert await store.counts("", akv.graph.compile(desk()).digest) == {}


async def test_ways_are_counted_for_their_tenant_and_outlive_the_runtime(tmp_path: Path) -> None:
    digest, path = akv.graph.compile(desk()).digest, tmp_path / "runs.db"
    found = []
    for way, salt, runs in (("check", "secret-a", 6), ("check", "secret-a", 1), ("answer", "secret-b", 1)):
        async with akv.Runtime(sim(script(way)), store=f"sqlite:{path}") as rt:
            for _ in range(runs):
                result = await ask(rt, salt=salt)
            found.append(ahead(result))
            owner = akv.runtime.tenure.owner_of(salt)
            counts = await rt._store.counts(owner, digest)
        target = "END" if way == "answer" else "check"
        assert counts[("decide", target)] == counts[("plan", "decide")]
    # The second runtime knows from the journal that nobody asks the editor; the other tenant's does not.
    assert found[1][0] == found[1][1] > 200
    assert found[2][0] > 1.5 * found[1][0]
    assert b"secret" not in path.read_bytes()


async def test_a_full_pool_has_no_room_for_what_may_never_be_asked() -> None:
    for pool, expected in ((4000, True), (90, False)):
        async with akv.Runtime(managed_sim(script("check"), PolicySettings(), {"pool_blocks": pool})) as rt:
            result = await rt.run(desk(check=0.8), "Where?", kv=AHEAD, working_set=32 * min(pool, 85))
            assert (ahead(result)[0] > 0) == expected


class Forgetful(MemoryStore):
    """Keeps journals; of what it counts it can read nothing, and it never ends writing it."""

    async def counts(self, owner: str, graph: str) -> dict[tuple[str, str], int]:
        raise StoreError("a damaged count")

    async def count(self, owner: str, graph: str, ways: Mapping[tuple[str, str], int]) -> None:
        await anyio.sleep_forever()


async def test_a_history_that_cannot_be_kept_costs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.runtime.next_steps.SAVE_SECONDS", 0.05)
    async with akv.Runtime(sim(script("check")), store=Forgetful()) as rt:
        with pytest.warns(RuntimeWarning, match="history of graph 'desk': a damaged count"), anyio.fail_after(20):
            assert (await ask(rt)).output == "Good."
        # Said once: a warning here would be an error.
        assert (await ask(rt)).output == "Good."
