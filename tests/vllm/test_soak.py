"""Random runs, cancellations and pool pressure for a while: nothing leaks, and hits stay what they were.

``AGENTKV_SOAK_SECONDS`` says how long (60 unless set), ``AGENTKV_SOAK_SEED`` repeats a load.
"""

import os
import random
from collections import Counter
from itertools import count
from typing import Any

import anyio
import pytest
from attrs import Factory, define

import agentkv as akv
from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine

SECONDS = float(os.environ.get("AGENTKV_SOAK_SECONDS", "60"))
SEED = int(os.environ.get("AGENTKV_SOAK_SEED") or random.randrange(1 << 32))
pytestmark = [pytest.mark.soak, pytest.mark.vllm("leases"), pytest.mark.timeout(SECONDS + 300)]

ANCHOR_TTL = 0.5
# A third of the load must have so many resumes for its share of hits to mean anything; a slow machine takes longer.
FEWEST_RESUMES = 4


@akv.tool
async def work(ctx: akv.Context[float]) -> str:
    """Work for a while."""
    await ctx.sleep(ctx.deps)
    return "done " * 30


worker = akv.Agent("worker", instructions="Work and say so. " * 20, tools=[work], deps=float, max_tokens=32)


def shift() -> akv.Graph[float, str]:
    graph = akv.Graph("shift", deps=float)
    plan, act = graph.plan("plan", worker, tool_choice=[work]), graph.tool("act")
    answer = graph.replan("answer", worker, tool_choice="none", max_tokens=6)
    graph.path(akv.START, plan, act, answer, akv.END)
    return graph


@define
class Seen:
    """How runs ended, and of each resume, in turn, the tokens found cached and those predicted to be."""

    ends: Counter[str] = Factory(Counter)
    resumes: list[tuple[int, int]] = Factory(list)

    def share(self, third: int) -> float:
        """Of the tokens predicted to be cached in a third of the resumes, those that were."""
        size = len(self.resumes) // 3
        chosen = self.resumes[third * size : (third + 1) * size]
        return sum(cached for cached, _ in chosen) / sum(predicted for _, predicted in chosen)


class Load:
    """Four clients that run agents and cancel some, and one that fills the pool with prompts of nobody's."""

    def __init__(self, rt: akv.Runtime) -> None:
        self.seen, self._rt, self._graph, self._names = Seen(), rt, shift(), count()

    async def run(self, seconds: float) -> None:
        self._until = anyio.current_time() + seconds
        async with anyio.create_task_group() as tasks:
            for client in range(4):
                tasks.start_soon(self._agents, random.Random(f"{SEED} {client}"))
            tasks.start_soon(self._strangers, random.Random(f"{SEED} stranger"))

    @property
    def _goes_on(self) -> bool:
        return anyio.current_time() < self._until or len(self.seen.resumes) < 3 * FEWEST_RESUMES

    async def _agents(self, dice: random.Random) -> None:
        while self._goes_on:
            level: Any = dice.choice((0, 1, 2))
            mode: akv.TransferMode = dice.choice(("prefix", "bidirectional", "bidirectional"))
            kv = akv.KVConfig(kv_transfer_mode=mode, prefetch_step=64, transfer_sync_level=level, anchor_ttl=ANCHOR_TTL)
            prompt = f"Shift {next(self._names)}: " + "carry the parcel to the van; " * dice.randrange(2, 30)
            salt, last = dice.choice(("a", "b")), dice.choice((None, None, dice.randrange(2, 12)))
            await self._one(prompt, dice.random() * 0.6, kv, salt, last)

    async def _one(self, prompt: str, seconds: float, kv: akv.KVConfig, salt: str, last: int | None) -> None:
        async with self._rt.start(self._graph, prompt, deps=seconds, kv=kv, cache_salt=salt) as run:
            events = 0
            async for _ in run:
                events += 1
                if events == last:
                    run.cancel()
        assert run.state.end is not None
        self.seen.ends[run.state.end.type] += 1
        self.seen.resumes += [(step.cached, step.predicted) for step in run.report.steps[1:]]

    async def _strangers(self, dice: random.Random) -> None:
        while self._goes_on:
            await anyio.sleep(dice.uniform(0.5, 2.0))
            ids = dice.choices(range(100, 40_000), k=dice.randrange(200, 1000))
            request = GenerateRequest(request_id=f"stranger/{next(self._names)}", token_ids=ids, max_tokens=1)
            async for _ in self._rt.engine.generate(request):
                pass


async def left(engine: VLLMEngine) -> dict[str, Any]:
    """What is still held, once what ends by its time to live has ended."""
    stats = await engine.kv("stats", {})
    with anyio.move_on_after(20 * ANCHOR_TTL):
        while stats["leases"] or stats["free_blocks"] != stats["pool_blocks"]:
            stats = await engine.kv("stats", {})
    names = ("leases", "leased_blocks", "runs", "runs_waiting", "prefetches", "held_requests", "live_requests")
    return {**{name: stats[name] for name in names if stats[name]}, **stats["errors"]} | (
        {} if stats["free_blocks"] == stats["pool_blocks"] else {"free_blocks": stats["free_blocks"]}
    )


async def test_random_runs_leave_nothing_and_hits_stay_what_they_were(vllm_engine: VLLMEngine) -> None:
    print(f"soak of {SECONDS:g} s; repeat it with AGENTKV_SOAK_SEED={SEED}")
    async with akv.Runtime(vllm_engine, kv=akv.KVConfig(anchor_ttl=ANCHOR_TTL)) as rt:
        load = Load(rt)
        await load.run(SECONDS)
    seen = load.seen
    first, last = seen.share(0), seen.share(2)
    print(f"ends {dict(seen.ends)}, {len(seen.resumes)} resumes, hit shares {first:.3f} and {last:.3f}")
    assert set(seen.ends) == {"run_finished", "run_cancelled"}
    assert last > first - 0.05
    assert await left(vllm_engine) == {}
    stats = await vllm_engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)
