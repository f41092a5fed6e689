"""Prefilling ahead for some runs beside others: what it costs those, and when it waits for them."""

from functools import partial

import anyio
import pytest

import agentkv as akv
from agentkv.bench.measure import percentile
from agentkv.testing import call, calls, say

from .conftest import Open

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 120
WAITS = (1.5, 2.0, 2.5, 3.0, 4.0)


@akv.tool
async def quick() -> str:
    """Comes at once, and is long."""
    return LONG


@akv.tool
async def slow(ctx: akv.Context[float]) -> str:
    """Comes late."""
    await ctx.sleep(ctx.deps)
    return "slow"


agent = akv.Agent("reader", instructions="Read both." * 60, tools=[quick, slow], deps=float)
SCRIPT = [calls(call("quick"), call("slow")), say("Done. " * 60)]


async def waits_of_others(runtime: Open, mode: akv.config.TransferMode) -> tuple[list[float], int]:
    """TTFT after a tool of 20 runs that do not prefill ahead, beside 10 that have ``mode``; what those prefilled."""
    waits: list[float] = []
    ahead = 0
    async with runtime(SCRIPT, engine={"pool_blocks": 12_000}) as rt:

        async def one(n: int) -> None:
            nonlocal ahead
            await rt.engine.clock.sleep(n * 0.07)
            mine = mode if n % 3 == 0 else "prefix"
            kv = akv.KVConfig(kv_transfer_mode=mine)
            result = await rt.run(agent, f"Go {n}", deps=WAITS[n % len(WAITS)], kv=kv, cache_salt=str(n))
            if n % 3:
                waits.extend(result.kv.ttft_after_tool)
            ahead += result.kv.totals.prefetched

        async with anyio.create_task_group() as tasks:
            for n in range(30):
                tasks.start_soon(partial(one, n))
    return waits, ahead


@pytest.mark.parametrize("mode", ["bidirectional", "auto"])
async def test_others_do_not_wait_longer_for_it(runtime: Open, mode: akv.config.TransferMode) -> None:
    without, none = await waits_of_others(runtime, "prefix")
    beside, some = await waits_of_others(runtime, mode)
    assert len(without) == len(beside) == 20
    assert none == 0 < some
    assert percentile(beside, 95) <= 1.05 * percentile(without, 95)


async def test_a_prefetch_waits_while_somebody_waits_for_a_first_token(runtime: Open) -> None:
    async with runtime(SCRIPT) as rt:
        pace = rt._services.pace
        sent: list[float] = []

        async def offer() -> None:
            assert await pace.ready(100, 64) == 64
            sent.append(rt.engine.clock.now())

        async with anyio.create_task_group() as tasks:
            with pace.generation(1000) as generating:
                tasks.start_soon(offer)
                await rt.engine.clock.sleep(1.0)
                assert not sent
                generating.first()
                generating.done(1)
            await rt.engine.clock.sleep(1.0)
    assert sent == [1.0]


async def test_an_offer_that_is_cancelled_counts_no_more(runtime: Open) -> None:
    async with runtime(SCRIPT) as rt:
        pace = rt._services.pace
        with pace.generation(1000):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(pace.ready, 100, 64)
                    await rt.engine.clock.sleep(1.0)
                    assert pace._offered == 100
                    scope.cancel()
            assert (pace._offered, pace._offers) == (0, {})
