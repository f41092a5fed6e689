"""What happened to KV, as a runtime tells it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from attrs import evolve

import agentkv as akv
from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import SimEngine
from agentkv.errors import EngineUnavailable
from agentkv.kv import PolicySettings, Record
from agentkv.runtime import records
from agentkv.testing import Script, call, say, sim

Open = Callable[..., AbstractAsyncContextManager[akv.Runtime]]
POOL = 60


@akv.tool
async def wait(ctx: akv.Context[None], seconds: float) -> str:
    """Wait."""
    await ctx.sleep(seconds)
    return "done"


waiter = akv.Agent("waiter", instructions="Wait, then say so. " * 60, tools=[wait], max_tokens=32)
SCRIPT: list[Any] = [call("wait", seconds=20.0), say("ok")]
MANAGED = {"kv": PolicySettings(kv_pool_ratio=1.0), "pool_blocks": POOL, "max_model_len": POOL * 32}


async def stranger(rt: akv.Runtime) -> None:
    """A prompt of nobody's that fills the pool while the run waits for its tool."""
    await rt.engine.clock.sleep(10.0)
    ids = list(range(100, 100 + (POOL - 1) * 32))
    async for _ in rt.engine.generate(GenerateRequest(request_id="stranger", token_ids=ids, max_tokens=1)):
        pass


async def pressed(rt: akv.Runtime) -> akv.Result[str]:
    """A run whose lease gives way to a stranger."""
    ended: list[akv.Result[str]] = []

    async def run() -> None:
        ended.append(await rt.run(waiter, "Go"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        tasks.start_soon(stranger, rt)
    return ended[0]


def kinds(found: list[Record]) -> set[str]:
    return {record.kind for record in found}


async def test_records_name_what_gave_way_and_for_whom(runtime: Open) -> None:
    async with runtime(SCRIPT, engine=MANAGED) as rt:
        result = await pressed(rt)
        found = await rt.kv_records(result.id)
        assert {"lease.grant", "lease.evict", "admission.admit", "admission.leave"} <= kinds(found)
        evicted = [record for record in found if record.kind == "lease.evict" and record.lease_class == "chain"]
        assert evicted
        assert {record.for_whom for record in evicted} == {"stranger"}
        assert sum(record.blocks for record in evicted) > 0
        assert evicted[0].handle is not None
        told = [each for each in result.kv.incidents if each.kind == "lease.evict" and each.lease_class == "chain"]
        assert [(each.for_whom, each.blocks) for each in told] == [("stranger", sum(each.blocks for each in evicted))]
        every = await rt.kv_records()
        assert [record.number for record in every] == list(range(1, len(every) + 1))


async def test_records_of_a_run_are_its_own_and_those_of_its_requests(runtime: Open) -> None:
    async with runtime(lambda request: [0, 1], engine=MANAGED) as rt:
        first, second = [(await rt.run(waiter, f"Go {n}")).id for n in range(2)]
        every, mine = await rt.kv_records(), await rt.kv_records(first)
        others = [record for record in every if record not in mine]
        assert {record.run for record in mine} == {first}
        # anchors are shared by runs, so their leases are nobody's
        assert {record.run for record in others} == {second, "anchor/waiter"}
        assert await rt.kv_records("nobody") == []


async def test_all_pages_are_read(runtime: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PAGE", 2)
    async with runtime(lambda request: [0, 1], engine=MANAGED) as rt:
        await rt.run(waiter, "Go")
        found, last = await rt.kv_records(), (await rt.engine.stats())["last_record"]
        assert [record.number for record in found] == list(range(1, last + 1))
        assert last > 3


async def test_a_runtime_tells_what_happened_since_it_was_opened() -> None:
    async with sim(lambda request: [0, 1], engine_kv=akv.EngineKV()) as engine:
        async with akv.Runtime(engine) as rt:
            await rt.run(waiter, "Go")
        async with akv.Runtime(engine) as later:
            assert await later.kv_records() == []
            run = await later.run(waiter, "Go again")
            assert {record.run for record in await later.kv_records()} == {run.id}


async def test_an_engine_that_manages_no_kv_has_no_records(runtime: Open) -> None:
    async with runtime(lambda request: [0, 1], engine={"kv": None}) as rt:
        await rt.run(waiter, "Go")
        assert await rt.kv_records() == []


async def test_a_runtime_that_is_not_open_says_so() -> None:
    with pytest.raises(EngineUnavailable, match="not open"):
        await akv.Runtime(sim()).kv_records()


async def test_two_runtimes_hold_their_anchors_side_by_side() -> None:
    engine = SimEngine(Script(lambda prompt, tag: say("So.")), kv=PolicySettings())
    async with engine, akv.Runtime(engine) as one, akv.Runtime(engine) as two, anyio.create_task_group() as tasks:
        for rt in (one, two):
            chain = rt.chain(akv.Agent("clerk", instructions="You help. " * 40))
            chain.append("Go")
            tasks.start_soon(chain.generate)
        await engine.clock.sleep(5)
        assert all(anchor.token for rt in (one, two) for anchor in rt._services.anchors._held.values())


async def test_the_report_says_how_often_the_engine_gave_no_lease() -> None:
    async with akv.Runtime(sim([say("So.")])) as rt:
        report = (await rt.run(akv.Agent("clerk", instructions="You help."), "Go")).kv
    told = evolve(report, refused=("budget", "room", "room")).text()
    assert "  no lease, 1 time: budget\n  no lease, 2 times: room\n" in f"{told}\n"
