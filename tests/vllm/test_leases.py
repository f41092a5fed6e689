"""Leases, order of work and admission inside a real vLLM: 128 usable blocks of 32 tokens, float32."""

import random
from itertools import count
from typing import Any
from uuid import uuid4

import anyio
import pytest

import agentkv as akv
from agentkv.engines.base import GenerateRequest, PrefillRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.errors import EngineError
from agentkv.kv import Directive, Grant

pytestmark = pytest.mark.vllm("leases")

BLOCK = 32
CHAIN = 736
NUMBERS = count()


def tokens(length: int) -> list[int]:
    return random.Random(next(NUMBERS)).choices(range(100, 40_000), k=length)


async def ask(
    engine: VLLMEngine, ids: list[int], directive: Directive | None = None, most: int = 2
) -> tuple[int, Grant | None]:
    request = GenerateRequest(request_id=f"l{next(NUMBERS)}", token_ids=ids, max_tokens=most, directive=directive)
    deltas = [delta async for delta in engine.generate(request)]
    assert deltas[-1].usage is not None
    return deltas[-1].usage.cached, deltas[-1].grant


def lease(**more: Any) -> Directive:
    return Directive(**{"run": uuid4().hex, "ttl": 60.0, **more})


async def release(engine: VLLMEngine, *grants: Grant | None) -> None:
    held = [grant.token for grant in grants if grant is not None and grant.token is not None]
    assert (await engine.kv("release", {"tokens": held}))["reasons"] == [None] * len(held)


async def check_clean(engine: VLLMEngine) -> None:
    """No lease is left, nothing failed inside the engine, and every block is free."""
    stats = await engine.kv("stats", {})
    with anyio.move_on_after(5):
        # what an aborted request had is freed behind the step that it was in
        while stats["free_blocks"] != stats["pool_blocks"]:
            stats = await engine.kv("stats", {})
    assert stats["leases"] == 0, stats
    assert stats["free_blocks"] == stats["pool_blocks"] == engine.info.pool_blocks, stats
    assert stats["errors"] == {}
    assert stats["live_requests"] == 0
    assert stats["held_requests"] == 0


async def test_a_leased_chain_survives_what_evicts_an_unleased_one(vllm_engine: VLLMEngine) -> None:
    for leased in (True, False):
        chain = tokens(CHAIN)
        _, grant = await ask(vllm_engine, chain, lease() if leased else None)
        for _ in range(4):
            await ask(vllm_engine, tokens(CHAIN * 3 // 2))
        cached, after = await ask(vllm_engine, [*chain, *tokens(20)])
        assert cached == (CHAIN // BLOCK * BLOCK if leased else 0)
        assert after is None
        if leased:
            await release(vllm_engine, grant)
    await check_clean(vllm_engine)


async def test_leases_give_way_to_a_request_that_needs_the_room(vllm_engine: VLLMEngine) -> None:
    grants = [(await ask(vllm_engine, tokens(900), lease(expected_reuse=float(n))))[1] for n in range(4)]
    before = await vllm_engine.kv("events", {"after": 0, "limit": 4096})
    longest = tokens(vllm_engine.info.max_model_len - 2)
    request = GenerateRequest(request_id="longest", token_ids=longest, max_tokens=1)
    with anyio.fail_after(60):
        assert [delta async for delta in vllm_engine.generate(request)][-1].finish == "length"
    events = await vllm_engine.kv("events", {"after": before["cursor"], "limit": 4096})
    evicted = [event for event in events["events"] if event["kind"] == "lease.evict"]
    assert evicted
    assert all(event["for_whom"].startswith("longest") for event in evicted)
    assert all(event["lease_class"] == "chain" and event["blocks"] > 0 for event in evicted)
    for grant in grants:
        if grant is not None and grant.token is not None:
            await vllm_engine.kv("release", {"tokens": [grant.token]})
    await check_clean(vllm_engine)


async def test_a_lease_ends_with_its_time_to_live(vllm_engine: VLLMEngine) -> None:
    await ask(vllm_engine, tokens(CHAIN), lease(ttl=0.2))
    with anyio.fail_after(10):
        while (await vllm_engine.kv("stats", {}))["leases"]:
            await anyio.lowlevel.checkpoint()
    await check_clean(vllm_engine)


async def test_tokens_and_handles_are_checked(vllm_engine: VLLMEngine) -> None:
    _, grant = await ask(vllm_engine, tokens(CHAIN), lease(owner="a"))
    assert grant is not None
    assert grant.handle is not None
    token, handle = grant.token, grant.handle.as_wire()
    assert (await vllm_engine.kv("verify", {"token": token, "handle": handle}))["reason"] is None
    for field, value in (("engine_id", "x"), ("epoch", 7), ("owner", "b"), ("digest", "00"), ("length", 32)):
        answer = await vllm_engine.kv("verify", {"token": token, "handle": {**handle, field: value}})
        assert answer["reason"].startswith(field.removesuffix("_id"))
    assert (await vllm_engine.kv("release", {"tokens": ["forged"]}))["reasons"] != [None]
    assert (await vllm_engine.kv("renew", {"leases": [{"token": "forged", "ttl": 5.0}]}))["reasons"] != [None]
    await release(vllm_engine, grant)
    await check_clean(vllm_engine)


@pytest.mark.parametrize(
    "wire",
    [
        "",
        "{",
        "[]",
        "null",
        '{"v": 1}',
        '{"v": 99, "run": "x"}',
        '{"v": 1, "run": 7}',
        '{"v": 1, "run": "x", "ttl": -1}',
        '{"v": 1, "run": "x", "ttl": 1e400}',
        "x" * 100_000,
        '{"v": 1, "run": "x", "class": "king"}',
        7,
        [1],
        None,
    ],
)
async def test_a_directive_that_makes_no_sense_is_dropped_and_the_engine_lives(
    vllm_engine: VLLMEngine, wire: object
) -> None:
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=1, extra_args={"agentkv": wire}, detokenize=False)
    outputs = vllm_engine._llm().generate({"prompt_token_ids": tokens(40)}, params, f"bad{next(NUMBERS)}")
    last = [output async for output in outputs][-1]
    assert last.finished
    assert "rejected" in last.kv_transfer_params["agentkv"]
    await check_clean(vllm_engine)


@pytest.mark.parametrize(
    "operation", ["admit", "renew", "release", "verify", "update", "heartbeat", "leave", "events", "nonsense"]
)
async def test_an_operation_with_a_bad_payload_is_an_answer(vllm_engine: VLLMEngine, operation: str) -> None:
    for payload in ({}, {"leases": 3}, {"tokens": "x"}, {"ticket": None}, {"after": -1}, {"tickets": [{}], "ttl": "x"}):
        answer = await vllm_engine.kv(operation, payload)
        assert answer
    await check_clean(vllm_engine)


async def test_a_run_that_does_not_fit_waits_and_is_told_where(vllm_engine: VLLMEngine) -> None:
    budget = (await vllm_engine.kv("stats", {}))["lease_budget"]
    first = await vllm_engine.kv("admit", {"run": "one", "blocks": budget * 3 // 4, "ttl": 60.0})
    second = await vllm_engine.kv("admit", {"run": "two", "blocks": budget * 3 // 4, "ttl": 60.0})
    child = await vllm_engine.kv("admit", {"run": "kid", "blocks": 8, "ttl": 60.0, "parent": first["ticket"]})
    assert (first["state"], second["state"], second["position"], child["state"]) == (
        "admitted",
        "queued",
        1,
        "admitted",
    )
    waited: list[str] = []

    async def held() -> None:
        await ask(vllm_engine, tokens(100), lease(run="two", ticket=second["ticket"], ttl=0.0))
        waited.append("two")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held)
        await ask(vllm_engine, tokens(100))
        assert waited == []
        await vllm_engine.kv("leave", {"tickets": [first["ticket"]]})
    assert waited == ["two"]
    await vllm_engine.kv("leave", {"tickets": [second["ticket"]]})
    await check_clean(vllm_engine)


async def test_one_larger_than_the_pool_runs_alone(vllm_engine: VLLMEngine) -> None:
    giant = await vllm_engine.kv("admit", {"run": "giant", "blocks": 10_000, "ttl": 60.0})
    other = await vllm_engine.kv("admit", {"run": "other", "blocks": 1, "ttl": 60.0})
    assert (giant["state"], other["state"]) == ("admitted", "queued")
    await vllm_engine.kv("leave", {"tickets": [giant["ticket"], other["ticket"]]})
    await check_clean(vllm_engine)


async def test_a_prefetch_delays_a_resume_by_a_small_step_only(vllm_engine: VLLMEngine) -> None:
    step = (await vllm_engine.kv("info", {}))["settings"]["prefetch_step"]
    chain, ahead = tokens(CHAIN), tokens(1500)
    _, grant = await ask(vllm_engine, chain, lease(run="resumer"))
    before = await vllm_engine.kv("stats", {})
    assert before["live_requests"] == 0
    done: list[str] = []

    async def prefetch() -> None:
        request = PrefillRequest(
            request_id=f"l{next(NUMBERS)}",
            token_ids=ahead,
            directive=lease(kind="prefill", lease_class="speculative", ttl=0.0),
        )
        await vllm_engine.prefill(request)
        done.append("prefetch")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prefetch)
        with anyio.fail_after(30):
            while not (await vllm_engine.kv("stats", {}))["prefetches"]:
                await anyio.lowlevel.checkpoint()
        await ask(vllm_engine, [*chain, *tokens(16)], lease(run="resumer", resume=True, ttl=0.0), most=1)
        done.append("resume")
    assert step < 1500
    assert done == ["resume", "prefetch"]
    await release(vllm_engine, grant)
    await check_clean(vllm_engine)


async def test_resetting_the_cache_drops_leases_and_counts_an_epoch(vllm_engine: VLLMEngine) -> None:
    _, grant = await ask(vllm_engine, tokens(CHAIN), lease())
    epoch = (await vllm_engine.kv("info", {}))["epoch"]
    answer = await vllm_engine.kv("reset", {})
    assert (answer["leases_dropped"], answer["epoch"], answer["done"]) == (1, epoch + 1, True)
    assert grant is not None
    assert (await vllm_engine.kv("release", {"tokens": [grant.token]}))["reasons"] != [None]
    await check_clean(vllm_engine)


@akv.tool
async def work(ctx: akv.Context[None], seconds: float) -> str:
    """Work for a while."""
    await ctx.sleep(min(seconds, 0.3))
    return "done " * 30


worker = akv.Agent("worker", instructions="Work and say so. " * 20, tools=[work], max_tokens=48, retries=5)


async def test_runs_with_leases_and_cancellations_leave_nothing(vllm_engine: VLLMEngine) -> None:
    graph = akv.Graph("shift")
    plan, act = graph.plan("plan", worker, tool_choice=[work]), graph.tool("act")
    answer = graph.replan("answer", worker, tool_choice="none", max_tokens=6)
    graph.path(akv.START, plan, act, answer, akv.END)
    ends: list[str] = []
    async with akv.Runtime(vllm_engine, kv=akv.KVConfig(kv_transfer_mode="bidirectional", anchor_ttl=0.5)) as rt:

        async def one(number: int) -> None:
            async with rt.start(graph, f"Shift {number}") as run:
                async for _ in run:
                    if number % 2 and random.Random(number).random() < 0.2:
                        run.cancel()
                assert run.state.end is not None
                ends.append(run.state.end.type)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(one, number)
    assert len(ends) == 8
    assert ends.count("run_finished") >= 4, ends
    with anyio.fail_after(10):
        while (await vllm_engine.kv("stats", {}))["leases"]:
            await anyio.lowlevel.checkpoint()
    await check_clean(vllm_engine)
    assert (await vllm_engine.kv("stats", {}))["runs"] == 0


async def test_an_unmanaged_engine_says_so(vllm_engine: VLLMEngine) -> None:
    assert vllm_engine.info.capabilities["leases"] == "on"
    with pytest.raises(EngineError):
        await ask(vllm_engine, tokens(5000))
