"""Runs of equal length side by side on a managed engine say what each of them says alone, however resumes part."""

from typing import Any, Literal
from uuid import uuid4

import anyio
import pytest
from attrs import evolve

import agentkv as akv
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("leases")

TOWNS = ("Oslo", "Bonn", "Rome")
NOTE = "The van to {town} leaves at {n} o'clock and takes {n} parcels. "


@akv.tool
async def notes(ctx: akv.Context[str], topic: Literal["vans"]) -> str:
    """Notes on a topic; come at once, and are long."""
    return topic + ": " + "".join(NOTE.format(town=ctx.deps, n=n) for n in range(1, 13))


@akv.tool
async def weigh(ctx: akv.Context[str], kind: Literal["net"]) -> str:
    """Weigh the parcel; comes while the notes are being prefilled, at another moment for each town."""
    await ctx.sleep(0.2 + 0.15 * TOWNS.index(ctx.deps))
    return f"{kind} weight to {ctx.deps}: 7 kilograms"


clerk = akv.Agent(
    "clerk",
    instructions="You are a clerk at a parcel counter. Read the notes and weigh before you answer. " * 3,
    tools=[notes, weigh],
    deps=str,
    max_tokens=64,
)


def counter() -> akv.Graph[str, str]:
    graph = akv.Graph("counter", deps=str)
    plan, act = graph.plan("plan", clerk, tool_choice=[notes, weigh]), graph.tool("act")
    answer = graph.replan("answer", clerk, tool_choice="none", max_tokens=16)
    graph.path(akv.START, plan, act, answer, akv.END)
    return graph


async def test_every_answer_is_that_of_the_run_alone_at_all_sync_levels(vllm_engine: VLLMEngine) -> None:
    graph, prefetched = counter(), 0
    # Other tests of this engine find nothing left of these anchors.
    brief = akv.KVConfig(kv_transfer_mode="prefix", anchor_ttl=0.5)
    async with akv.Runtime(vllm_engine, kv=brief) as rt:

        async def one(town: str, kv: akv.KVConfig, into: dict[str, Any]) -> None:
            prompt = f"Which van takes my parcel to {town}?"
            into[town] = await rt.run(graph, prompt, deps=town, kv=kv, cache_salt=uuid4().hex)

        alone: dict[str, Any] = {}
        for town in TOWNS:
            await one(town, brief, alone)
        # Were their answers equal, one run's KV in another's prompt could pass unseen.
        assert len({result.output.replace(town, "") for town, result in alone.items()}) > 1
        for level in (0, 1, 2):
            together: dict[str, Any] = {}
            kv = evolve(brief, kv_transfer_mode="bidirectional", prefetch_step=64, transfer_sync_level=level)
            async with anyio.create_task_group() as tasks:
                for town in TOWNS:
                    tasks.start_soon(one, town, kv, together)
            for town in TOWNS:
                assert together[town].messages == alone[town].messages, (level, town)
            prefetched += sum(result.kv.totals.prefetched_used for result in together.values())
    assert prefetched > 0
    stats = await vllm_engine.kv("stats", {})
    assert (stats["errors"], stats["runs"]) == ({}, 0)
