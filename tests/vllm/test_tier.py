"""The second tier inside a real vLLM: 128 usable blocks of 32 tokens and 60 more in host memory, float32.

Where it makes a difference also with a model whose heads are divided between two workers.
"""

import random
import statistics
import time
from functools import partial
from itertools import count
from typing import Any

import anyio
import pytest
from attrs import frozen

from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.kv import Directive, Grant

pytestmark = pytest.mark.vllm("tier")
one_and_two = pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.vllm("two_ranks"))])

BLOCK = 32
LENGTH = 20
CHAIN = LENGTH * BLOCK
WORN: set[str] = set()
NUMBERS = count()


def tokens(length: int) -> list[int]:
    return random.Random(f"tier/{next(NUMBERS)}").choices(range(100, 4_000), k=length)


@frozen
class Answer:
    """What came back; ``seconds`` to the first token."""

    cached: int
    grant: Grant | None
    ids: tuple[int, ...]
    seconds: float

    @property
    def token(self) -> str:
        assert self.grant is not None
        assert self.grant.token is not None
        return self.grant.token


async def ask(
    engine: VLLMEngine, ids: list[int], directive: Directive | None = None, *, most: int = 3, reuse: bool = True
) -> Answer:
    request = GenerateRequest(
        request_id=f"t{next(NUMBERS)}", token_ids=ids, max_tokens=most, directive=directive, reuse=reuse
    )
    asked = time.perf_counter()
    came = [(time.perf_counter() - asked, delta) async for delta in engine.generate(request)]
    (seconds, _), (_, last) = came[0], came[-1]
    assert last.usage is not None
    return Answer(last.usage.cached, last.grant, tuple(i for _, delta in came for i in delta.token_ids), seconds)


def lease(**more: Any) -> Directive:
    return Directive(**{"run": "tier", "ttl": 60.0, **more})


async def until(engine: VLLMEngine, holds: Any) -> dict[str, Any]:
    """The engine's counters as soon as they hold; nothing but utility calls and idle steps goes on meanwhile."""
    with anyio.fail_after(20):
        while not holds(stats := await engine.kv("stats", {})):
            await anyio.lowlevel.checkpoint()
    return stats


async def still(engine: VLLMEngine) -> dict[str, Any]:
    return await until(engine, lambda stats: stats["tier_moving"] == {"demote": 0, "promote": 0})


async def crowd_out(engine: VLLMEngine) -> None:
    """Have what nobody holds in the pool written over by others: what has left it goes first, behind unused blocks."""
    for _ in range(1 if engine.info.engine_id in WORN else 3):
        await ask(engine, tokens(45 * BLOCK), most=1)
    WORN.add(engine.info.engine_id)


async def sent_away(engine: VLLMEngine) -> tuple[list[int], str]:
    """A chain of ``LENGTH`` blocks that is in host memory alone, as far as leases go, and the token of its lease."""
    chain = tokens(CHAIN)
    token = (await ask(engine, chain, lease())).token
    assert (await engine.kv("demote", {"tokens": [token]}))["reasons"] == [None]
    await until(engine, lambda stats: stats["tier_away"] == LENGTH)
    return chain, token


async def check_clean(engine: VLLMEngine, *held: str) -> None:
    await engine.kv("release", {"tokens": list(held)})
    stats = await until(
        engine, lambda s: s["free_blocks"] == s["pool_blocks"] and s["tier_moving"] == {"demote": 0, "promote": 0}
    )
    assert stats["leases"] == stats["tier_used"] == stats["tier_away"] == stats["tier_waiting"] == 0, stats
    assert stats["errors"] == {}


async def cold(engine: VLLMEngine, ids: list[int]) -> tuple[int, ...]:
    """What the model says when nothing cached is read: in float32 that is what an untouched engine says."""
    return (await ask(engine, ids, reuse=False)).ids


@one_and_two
async def test_it_says_what_it_reserved(vllm_engine: VLLMEngine, ranks: int) -> None:
    assert vllm_engine.info.capabilities["tier"] == "on"
    info = await vllm_engine.kv("info", {})
    assert info["tier_slots"] == 60
    # The bound is for all workers together, and what is reserved is what was asked for.
    assert info["tier_bytes"] == info["settings"]["cpu_tier_bytes"] == 60 * BLOCK * info["kv_bytes_per_token"] * ranks
    await check_clean(vllm_engine)


@one_and_two
async def test_an_idle_engine_demotes_and_the_chain_goes_on_as_if_nothing_had_happened(
    vllm_engine: VLLMEngine, ranks: int
) -> None:
    chain, token = await sent_away(vllm_engine)
    stats = await vllm_engine.kv("stats", {})
    assert stats["free_blocks"] == stats["pool_blocks"]
    await crowd_out(vllm_engine)
    longer = [*chain, *tokens(40)]
    resumed = await ask(vllm_engine, longer, lease(lease=token, resume=True, ttl=0.0))
    assert resumed.cached == CHAIN
    assert resumed.ids == await cold(vllm_engine, longer)
    events = (await vllm_engine.kv("events", {"after": 0, "limit": 4096}))["events"]
    waits = [event for event in events if event["kind"] == "tier.wait"]
    assert waits[-1]["blocks"] == LENGTH
    await check_clean(vllm_engine, token)


@one_and_two
async def test_an_idle_engine_promotes(vllm_engine: VLLMEngine, ranks: int) -> None:
    chain, token = await sent_away(vllm_engine)
    await crowd_out(vllm_engine)
    assert (await vllm_engine.kv("promote", {"tokens": [token]}))["reasons"] == [None]
    stats = await until(vllm_engine, lambda stats: stats["tier_away"] == 0)
    assert stats["leased_blocks"] == LENGTH
    # An ordinary hit for anybody, also for who knows of no lease.
    again = await ask(vllm_engine, [*chain, 7])
    assert again.cached == CHAIN
    assert again.ids == await cold(vllm_engine, [*chain, 7])
    await check_clean(vllm_engine, token)


class Agents:
    """Four chains that are resumed in turn by results of 100 tokens, each while the others do what keeps it waiting."""

    def __init__(self, engine: VLLMEngine) -> None:
        self.chains = [tokens(BLOCK) for _ in range(4)]
        self.grants: list[str] = []
        self.seconds: dict[str, list[float]] = {"whole": [], "half": []}
        self._engine = engine

    async def begin(self) -> None:
        for chain in self.chains:
            self.grants.append((await ask(self._engine, chain, lease(expected_reuse=1.0))).token)

    async def resume(self, pool: str, rounds: int = 1) -> None:
        """Resume each so many times; ``pool`` is where the seconds go, warming up to none."""
        for n, chain in enumerate(self.chains * rounds):
            known = (len(chain) - 1) // BLOCK * BLOCK
            chain.extend(tokens(100))
            directive = lease(lease=self.grants[n % len(self.grants)], resume=True, expected_reuse=1.0)
            answer = await ask(self._engine, chain, directive, most=1)
            assert answer.cached >= known, "no full block is computed twice"
            self.seconds.get(pool, []).append(answer.seconds)


async def test_with_half_a_pool_nothing_is_computed_twice_and_resumes_wait_little_more(vllm_engine: VLLMEngine) -> None:
    before = await vllm_engine.kv("stats", {})
    agents = Agents(vllm_engine)
    await agents.begin()
    await agents.resume("warm up")
    await agents.resume("whole", 2)
    # At the end of the next rounds the chains hold 64 blocks, and of 128 they have 32 for themselves.
    anchor = lease(lease_class="anchor")
    anchors = [(await ask(vllm_engine, tokens(48 * BLOCK + 1), anchor, most=1)).token for _ in range(2)]
    await agents.resume("half", 2)
    stats = await still(vllm_engine)
    await vllm_engine.kv("release", {"tokens": anchors})
    await agents.resume("warm up")
    await agents.resume("whole")
    whole, half = statistics.median(agents.seconds["whole"]), statistics.median(agents.seconds["half"])
    moved = {name: n - before["tier_totals"][name] for name, n in stats["tier_totals"].items()}
    print(f"TTFT {1000 * whole:.0f} ms with all of the pool, {1000 * half:.0f} ms with half of it; {moved}")
    lost = {kind: n - before["records"].get(kind, 0) for kind, n in stats["records"].items() if ".evict" in kind}
    assert not any(lost.values()), lost
    assert moved["fetched"] > 40
    assert half <= 1.3 * whole
    longer = [*agents.chains[0], 5]
    assert (await ask(vllm_engine, longer, lease(ttl=0.0))).ids == await cold(vllm_engine, longer)
    await check_clean(vllm_engine, *agents.grants)


@one_and_two
async def test_a_chain_that_resumes_in_the_middle_of_its_own_demotion(vllm_engine: VLLMEngine, ranks: int) -> None:
    chain = tokens(CHAIN)
    token = (await ask(vllm_engine, chain, lease())).token
    longer = [*chain, *tokens(5)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(vllm_engine.kv, "demote", {"tokens": [token]})
        answer = await ask(vllm_engine, longer, lease(lease=token, resume=True))
    assert answer.cached == CHAIN
    assert answer.ids == await cold(vllm_engine, longer)
    await check_clean(vllm_engine, token)


@one_and_two
async def test_what_was_spoilt_in_host_memory_is_computed_again_and_counted(
    vllm_engine: VLLMEngine, ranks: int
) -> None:
    chain, token = await sent_away(vllm_engine)
    await crowd_out(vllm_engine)
    # What one worker finds wrong is wrong for all.
    assert await vllm_engine._llm().collective_rpc("spoil_host_memory", args=(ranks - 1,)) == [0] * (ranks - 1) + [60]
    longer = [*chain, *tokens(40)]
    answer = await ask(vllm_engine, longer, lease(lease=token, resume=True, ttl=0.0))
    assert answer.cached == 0
    assert answer.ids == await cold(vllm_engine, longer)
    assert (await vllm_engine.kv("stats", {}))["tier_failed"] == LENGTH
    events = (await vllm_engine.kv("events", {"after": 0, "limit": 4096, "kinds": ["tier.fail"]}))["events"]
    assert [(event["blocks"], event["reason"]) for event in events] == [(LENGTH, "promote")]
    await check_clean(vllm_engine, token)


@one_and_two
async def test_an_aborted_requests_chain_comes_back_for_the_next_one(vllm_engine: VLLMEngine, ranks: int) -> None:
    chain, token = await sent_away(vllm_engine)
    await crowd_out(vllm_engine)
    longer = [*chain, *tokens(200)]
    with anyio.move_on_after(0.02):
        await ask(vllm_engine, longer, lease(lease=token, resume=True))
    answer = await ask(vllm_engine, longer, lease(lease=token, resume=True, ttl=0.0))
    assert answer.cached >= CHAIN
    assert answer.ids == await cold(vllm_engine, longer)
    await check_clean(vllm_engine, token)


@one_and_two
async def test_the_chain_of_a_request_that_is_aborted_while_it_decodes_leaves_and_comes_back(
    vllm_engine: VLLMEngine, ranks: int
) -> None:
    chain = tokens(CHAIN)
    token = (await ask(vllm_engine, chain, lease())).token
    longer = [*chain, *tokens(40)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(ask, vllm_engine, longer, lease(lease=token, resume=True), most=1000))
        await until(vllm_engine, lambda stats: stats["live_requests"] == 1)
        assert (await vllm_engine.kv("demote", {"tokens": [token]}))["reasons"] == [None]
        await until(vllm_engine, lambda stats: stats["tier_used"] >= LENGTH)
        tasks.cancel_scope.cancel()
    await until(vllm_engine, lambda stats: stats["free_blocks"] == stats["pool_blocks"])
    await crowd_out(vllm_engine)
    answer = await ask(vllm_engine, longer, lease(lease=token, resume=True, ttl=0.0))
    # The block behind the chain that the aborted request had filled may be in the pool still.
    assert CHAIN <= answer.cached <= CHAIN + BLOCK
    assert answer.ids == await cold(vllm_engine, longer)
    await check_clean(vllm_engine, token)


@one_and_two
async def test_a_reset_forgets_both_tiers(vllm_engine: VLLMEngine, ranks: int) -> None:
    chain, _ = await sent_away(vllm_engine)
    answer = await vllm_engine.kv("reset", {})
    assert (answer["leases_dropped"], answer["done"]) == (1, True)
    assert (await ask(vllm_engine, [*chain, 7])).cached == 0
    await check_clean(vllm_engine)
