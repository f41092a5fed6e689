"""Leases on the simulated engine: what they keep, what gives way to whom, and what is written down."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import DirectiveError, EngineError
from agentkv.kv import Directive

Make = Callable[..., Any]

BLOCK = 32


def text(which: int, count: int) -> list[int]:
    return list(range(which * 100_000, which * 100_000 + count))


def grown(prompt: list[int], output: int = 4, more: int = 50) -> list[int]:
    """The chain after one round: prompt, generated ids, and something new."""
    return [*prompt, *range(5000, 5000 + output), *range(9_000_000, 9_000_000 + more)]


@pytest.mark.parametrize(("ttl", "hit"), [(60.0, 403 // BLOCK * BLOCK), (0.0, 0)])
async def test_a_leased_chain_survives_unrelated_prompts(managed: Make, ttl: float, hit: int) -> None:
    client = managed(pool_blocks=72)  # not quite four of the prompts below
    async with client.engine:
        chain = text(1, 400)
        await client.ask(chain, run="kept", ttl=ttl)
        for which in range(2, 6):
            await client.ask(text(which, 600), run=f"other{which}", ttl=0.0)
        assert (await client.ask(grown(chain), run="kept", resume=True)).usage.cached == hit
        client.engine.check_integrity()


async def test_the_longest_request_starts_at_once_though_everything_is_leased(managed: Make) -> None:
    client = managed(pool_blocks=100, max_model_len=3200, settings={"kv_pool_ratio": 1.0, "admission": "none"})
    async with client.engine:
        for which in range(10):
            await client.ask(text(which, 316), run=f"run{which}", ttl=600.0, expected_reuse=float(which))
        assert (await client.engine.stats())["leased_blocks"] == 90
        last = await client.ask(text(50, 3190), max_tokens=9, name="longest", run="big")
        assert last.usage.queue_s == 0.0
        evicted = await client.records("lease.evict")
        # The farthest expected reuse goes first.
        assert [each["run"] for each in evicted] == [f"run{which}" for which in reversed(range(10))]
        assert {(each["for_whom"], each["reason"], each["lease_class"]) for each in evicted} == {
            ("longest", "room", "chain")
        }
        assert sum(each["blocks"] for each in evicted) == 90
        assert evicted[0]["size"] == 9 * BLOCK * client.engine.info.kv_bytes_per_token
        assert (await client.engine.stats())["preemptions"] == 0
        client.engine.check_integrity()


async def test_no_more_is_revoked_than_is_needed_and_never_the_chain_asked_for(managed: Make) -> None:
    client = managed(pool_blocks=40, settings={"kv_pool_ratio": 1.0})
    async with client.engine:
        chain = text(1, 28 * BLOCK)
        first = await client.ask(chain, run="a", lease_class="speculative", ttl=600.0)
        await client.ask(text(2, 11 * BLOCK), run="b", lease_class="anchor", ttl=600.0)
        again = await client.ask(grown(chain, more=3 * BLOCK), run="a", lease=first.grant.token, resume=True)
        assert again.usage.cached == 28 * BLOCK
        # One block was free, four are needed; the speculative lease would go first but is what is built on.
        assert [(each["run"], each["blocks"]) for each in await client.records("lease.evict")] == [("b", 3)]
        assert again.grant.token == first.grant.token
        assert again.grant.blocks == again.grant.offered == 31


async def test_leases_hold_no_more_than_their_share_of_the_pool(managed: Make) -> None:
    client = managed(pool_blocks=60, settings={"kv_pool_ratio": 0.5})
    async with client.engine:
        grants = [(await client.ask(text(which, 640), run="r", ttl=600.0)).grant for which in range(3)]
        # The older of equals gives way: the newest is expected no later.
        assert [(grant.blocks, grant.offered) for grant in grants] == [(20, 20), (20, 20), (20, 20)]
        stats = await client.engine.stats()
        assert (stats["leased_blocks"], stats["lease_budget"]) == (30, 30)
        whole = await client.ask(text(9, 1600), run="r", ttl=600.0, lease_class="anchor")
        assert (whole.grant.blocks, whole.grant.offered) == (30, 50)


async def test_released_kv_goes_before_older_kv(managed: Make) -> None:
    client = managed(pool_blocks=40)
    async with client.engine:
        await client.ask(text(1, 10 * BLOCK), run="old", ttl=0.0)
        dead = (await client.ask(text(2, 10 * BLOCK), run="dead", ttl=60.0)).grant
        assert await client.call("release", tokens=[dead.token, "forged"]) == {
            "reasons": [None, "lease: no such token"]
        }
        await client.ask(text(3, 28 * BLOCK), run="new", ttl=0.0)
        assert (await client.ask(grown(text(1, 10 * BLOCK)), run="old")).usage.cached == 10 * BLOCK
        assert (await client.ask(grown(text(2, 10 * BLOCK)), run="dead")).usage.cached == 0
        client.engine.check_integrity()


async def test_a_lease_ends_with_its_time_on_an_idle_engine_too(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine:
        grant = (await client.ask(text(1, 400), run="r", ttl=5.0)).grant
        await client.engine.clock.sleep(4.9)
        renewal = {"token": grant.token, "ttl": 5.0, "expected_reuse": 1.0}
        assert await client.call("renew", leases=[renewal]) == {"reasons": [None]}
        await client.engine.clock.sleep(4.9)
        assert (await client.engine.stats())["leases"] == 1
        await client.engine.clock.sleep(0.2)
        await client.at_rest()


async def test_a_handle_names_the_kv_until_the_cache_is_reset(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine:
        prompt = text(1, 400)
        grant = (await client.ask(prompt, run="r", ttl=60.0)).grant
        assert (grant.handle.engine_id, grant.handle.length) == (client.engine.info.engine_id, 12 * BLOCK)
        handle = grant.handle.as_wire()
        assert await client.call("verify", token=grant.token, handle=handle) == {"reason": None}
        assert await client.call("reset") == {"leases_dropped": 1, "epoch": 1, "done": True, "reason": None}
        assert client.engine.info.epoch == 1
        assert (await client.call("verify", token=grant.token, handle=handle))["reason"] == "lease: no such token"
        assert (await client.ask(prompt, run="r", handle=grant.handle, lease=grant.token)).usage.cached == 0
        assert (await client.engine.stats())["records"]["reject"] == 2


async def test_a_reset_while_requests_run_keeps_their_blocks(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine, anyio.create_task_group() as group:
        group.start_soon(client.ask, text(1, 600), 50)
        await client.engine.clock.sleep(1.0)
        answer = await client.call("reset")
        assert answer["done"] is False
        assert answer["reason"].startswith("16 blocks are in use by requests")
        client.engine.check_integrity()


# Work ahead of need


async def test_a_prefetch_takes_its_lease_with_the_receipt(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine:
        receipt = await client.ahead(text(1, 320), ttl=60.0)
        assert (receipt.computed, receipt.grant.blocks) == (320, 10)
        assert (await client.engine.stats())["leases_by_class"] == {"speculative": 1}


async def test_a_prefetch_displaces_speculative_leases_and_nothing_else(managed: Make) -> None:
    client = managed(pool_blocks=40, settings={"kv_pool_ratio": 1.0})
    async with client.engine:
        await client.ask(text(1, 20 * BLOCK), run="chain", ttl=600.0, lease_class="branch")
        await client.ahead(text(2, 15 * BLOCK), run="guess", ttl=600.0)
        await client.ahead(text(3, 12 * BLOCK), run="better", ttl=600.0)
        assert {each["run"] for each in await client.records("lease.evict")} == {"guess"}
        with pytest.raises(EngineError, match=r"gave up prefetch 'third': no room that a prefetch may take"):
            await client.ahead(text(4, 30 * BLOCK), name="third", run="third", ttl=600.0)
        assert {each["run"] for each in await client.records("lease.evict")} == {"guess"}
        assert (await client.engine.stats())["leases_by_class"]["branch"] == 1
        client.engine.check_integrity()


async def test_a_prefetch_that_finds_no_room_holds_up_nobody_behind_it(managed: Make) -> None:
    client = managed(pool_blocks=40, settings={"kv_pool_ratio": 1.0})
    reasons: list[str] = []

    async def hopeless() -> None:
        with pytest.raises(EngineError) as caught:
            await client.ahead(text(4, 30 * BLOCK), run="hopeless")
        reasons.append(str(caught.value))

    async with client.engine:
        await client.ask(text(1, 20 * BLOCK), run="chain", ttl=600.0)
        async with anyio.create_task_group() as group:
            group.start_soon(hopeless)
            group.start_soon(client.ahead, text(5, 5 * BLOCK))
    assert len(reasons) == 1


async def test_real_work_ends_a_prefetch_rather_than_wait_for_it(managed: Make) -> None:
    client = managed(pool_blocks=33, settings={"prefetch_step": 64})

    async def guess() -> None:
        with pytest.raises(EngineError, match="room for real"):
            await client.ahead(text(1, 900), run="guess")

    async with client.engine:
        async with anyio.create_task_group() as group:
            group.start_soon(guess)
            await client.engine.clock.sleep(1.0)
            last = await client.ask(text(2, 1000), name="real", run="real")
            assert last.usage.queue_s < 0.3
        assert (await client.records("prefetch.drop"))[0]["reason"] == "room for real"


async def test_a_run_has_so_many_prefetches_at_once(managed: Make) -> None:
    client = managed(settings={"branch_prefetch_limit": 2})
    dropped: list[str] = []
    async with client.engine, anyio.create_task_group() as group:

        async def guess(which: int, run: str) -> None:
            try:
                await client.ahead(text(which, 320), run=run)
            except EngineError as error:
                dropped.append(str(error))

        for which in range(4):
            group.start_soon(guess, which, "many")
        group.start_soon(guess, 9, "few")
    assert len(dropped) == 2
    assert all("branch_prefetch_limit: 2" in each for each in dropped)


async def resume_beside(client: Any, *, ahead: bool) -> float:
    """TTFT of a resume, of which 200 tokens are new, that comes while 1,500 tokens are prefetched for another run."""
    async with client.engine as engine, anyio.create_task_group() as group:
        chain = text(1, 640)
        await client.ask(chain, run="a", ttl=600.0)
        if ahead:
            group.start_soon(client.ahead, text(2, 1500))
            await engine.clock.sleep(100.0)
        asked = engine.clock.now()
        last = await client.ask(grown(chain, more=200), 1, run="a", resume=True)
        return float(last.at - asked)


async def test_a_prefetch_delays_a_resume_by_one_small_step(managed: Make) -> None:
    # A token computed is a second here, and nothing else takes time.
    cost = StepCost(base_s=1e-9, prefill_token_s=1.0)
    delays = {}
    for step in (64, 4096):
        engines = [managed(cost=cost, max_num_batched_tokens=2048, settings={"prefetch_step": step}) for _ in range(2)]
        alone, beside = [
            await resume_beside(each, ahead=ahead) for each, ahead in zip(engines, (False, True), strict=True)
        ]
        delays[step] = beside - alone
    assert delays[64] <= 64
    assert delays[4096] > 1000, "an uncapped prefetch is felt, so the cap is what the figure above is owed to"


async def test_prefetches_share_a_step_and_come_after_real_work(managed: Make) -> None:
    client = managed(max_num_batched_tokens=512, settings={"prefetch_step": 64})
    steps: list[dict[str, int]] = []
    schedule = client.engine._scheduler.schedule

    def watched() -> Any:
        step = schedule()
        steps.append({request.request_id: tokens for request, tokens in step.rows})
        return step

    client.engine._scheduler.schedule = watched
    async with client.engine, anyio.create_task_group() as group:
        for which in range(3):
            group.start_soon(lambda which: client.ahead(text(which, 200), name=f"ahead{which}", run=f"{which}"), which)
        group.start_soon(lambda: client.ask(text(8, 700), 1, name="cold"))
        group.start_soon(lambda: client.ask(text(9, 100), 1, name="resume", resume=True))
    assert steps[0] == {"resume": 100}
    assert "cold" in steps[1]
    assert all(sum(n for name, n in step.items() if name.startswith("ahead")) <= 64 for step in steps)


# Engines without


async def test_without_settings_the_engine_is_stock_and_says_so(managed: Make) -> None:
    async with SimEngine(lambda request: range(5000, 5000 + request.max_tokens)) as engine:
        assert engine.info.capabilities["leases"].startswith("off: ")
        assert (await engine.kv("stats", {}))["error"].startswith("leases: off: ")
        assert set((await engine.kv("info", {}))["capabilities"]) == {"leases", "order", "admission", "tier"}
        request = GenerateRequest(request_id="r", token_ids=[1, 2], max_tokens=1, directive=Directive(run="r"))
        assert [delta.grant async for delta in engine.generate(request)] == [None]
        assert "leases" not in await engine.stats()


async def test_what_is_in_force_is_told(managed: Make) -> None:
    on = managed(pool_blocks=100).engine
    assert {on.info.capabilities[name] for name in ("leases", "order", "admission")} == {"on"}
    off = managed(settings={"prefix_cache_mode": "independent", "admission": "none"})
    assert off.engine.info.capabilities["leases"] == "off: prefix_cache_mode is independent"
    assert off.engine.info.capabilities["admission"] == "off: admission is none"
    async with off.engine:
        last = await off.ask(text(1, 100))
        assert last.grant.reason == "prefix_cache_mode: independent takes no leases"
        info = await off.call("info")
        assert (info["pool_blocks"], info["block_size"], info["epoch"]) == (1456, BLOCK, 0)
        assert info["settings"]["admission"] == "none"


async def test_a_directive_out_of_bounds_is_the_callers_mistake(managed: Make) -> None:
    client = managed()
    async with client.engine:
        with pytest.raises(DirectiveError, match="ttl"):
            await client.ask([1, 2], ttl=-1.0)
        await client.at_rest()
