"""Random runs, cancellations, full tiers and an engine that dies: nothing leaks, and no token is another one.

``AGENTKV_SOAK_SECONDS`` says how long (60 unless set), ``AGENTKV_SOAK_SEED`` repeats a load. What agents and plain
conversations say is held against what an engine says that manages no KV, token for token, in float32.
"""

import os
import random
from collections import Counter
from itertools import count, pairwise
from typing import Any

import anyio
import psutil
import pytest
from attrs import Factory, define

import agentkv as akv
from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine

SECONDS = float(os.environ.get("AGENTKV_SOAK_SECONDS", "60"))
SEED = int(os.environ.get("AGENTKV_SOAK_SEED") or random.randrange(1 << 32))
# Three starts of an engine, and what they are compared with.
pytestmark = [pytest.mark.soak, pytest.mark.vllm("tier"), pytest.mark.timeout(SECONDS + 1500)]

BLOCK = 32
ANCHOR_TTL = 0.5
# Fewer mean nothing; a slow machine takes longer.
FEWEST_RESUMES = 6
# What may have come between a chain and its resume, and is told to whose chain it was.
TOLD = frozenset(("lease.evict", "lease.expire", "lease.refuse", "tier.evict"))
AGENTS, TALKERS, SALTS = 5, 4, ("a", "b", "c")
PROMPTS = tuple(f"Shift {n}: " + "carry the parcel to the van; " * (2 + 7 * n) for n in range(5))
TALKS, TURNS = 5, 3

Said = list[Any]


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


async def follow(run: akv.Run[Any], last: int | None = None) -> Said:
    """What a run's agents said, by generation; it is cancelled behind its event number ``last``."""
    said, events = [], 0
    async for event in run:
        events += 1
        if event.type == "generation_finished":
            said.append(event.token_ids)
        if events == last:
            run.cancel()
    return said


@define
class Truth:
    """What an engine says that manages no KV, to agents by prompt and in conversations by name."""

    agents: dict[str, Said] = Factory(dict)
    talks: dict[str, Said] = Factory(dict)

    @classmethod
    async def of(cls, engine: VLLMEngine, talker: Any) -> "Truth":
        truth, graph = cls(), shift()
        for number in range(TALKS):
            name = f"{SEED}/{number}"
            _, truth.talks[name] = await talker(engine).hold(name, TURNS)
        async with akv.Runtime(engine, kv=akv.KVConfig(kv_transfer_mode="off")) as rt:
            for prompt in PROMPTS:
                async with rt.start(graph, prompt, deps=0.0) as run:
                    truth.agents[prompt] = await follow(run)
        return truth


@define
class Seen:
    """How runs ended, what was compared, and how many resumes there were.

    ``short`` counts those that found less than their chain held, by what the report says of it.
    """

    ends: Counter[str] = Factory(Counter)
    same: Counter[str] = Factory(Counter)
    wrong: list[str] = Factory(list)
    resumes: int = 0
    short: Counter[str] = Factory(Counter)
    moves: Counter[str] = Factory(Counter)
    fullest: int = 0

    def compare(self, name: str, said: Said, truth: Said) -> None:
        """Hold what was said against the truth, as far as it was said."""
        if said == truth[: len(said)]:
            self.same[name.partition(" ")[0]] += len(said)
        else:
            self.wrong.append(f"{name}: {said} instead of {truth}")

    def resumed(self, report: Any) -> None:
        """Count a run's resumes, and those of them before which full blocks of its chain were lost."""
        told = sorted({each.kind for each in report.incidents} & TOLD)
        for before, step in pairwise(report.steps):
            held = (before.prompt + before.generated - 1) // BLOCK * BLOCK
            self.resumes += 1
            if step.cached + step.diverged < held:
                self.short[", ".join(told) or "nothing"] += 1


class Load:
    """Clients that run agents and cancel some, that hold conversations, and one that fills the pool with nobody's."""

    def __init__(self, rt: akv.Runtime, engine: VLLMEngine, truth: Truth, talker: Any, life: int) -> None:
        self.seen, self._rt, self._engine, self._truth = Seen(), rt, engine, truth
        self._talker, self._life, self._graph, self._names = talker, life, shift(), count()
        self._dies = False

    async def run(self, seconds: float, *, dies: bool) -> None:
        """Load the engine for a while; ``dies``: then end its process in the midst of it."""
        self._until = anyio.current_time() + seconds
        async with anyio.create_task_group() as tasks:
            for client in range(AGENTS):
                tasks.start_soon(self._agents, self._dice(f"agent {client}"))
            for client in range(TALKERS):
                tasks.start_soon(self._talks, self._dice(f"talker {client}"))
            tasks.start_soon(self._strangers, self._dice("stranger"))
            await self._watch()
            if dies:
                self._dies = True
                kill_engine()

    def _dice(self, client: str) -> random.Random:
        return random.Random(f"{SEED} {self._life} {client}")

    @property
    def _goes_on(self) -> bool:
        return not self._dies and (anyio.current_time() < self._until or self.seen.resumes < FEWEST_RESUMES)

    async def _agents(self, dice: random.Random) -> None:
        while self._goes_on:
            level: Any = dice.choice((0, 1, 2))
            mode: akv.TransferMode = dice.choice(("prefix", "bidirectional", "bidirectional"))
            kv = akv.KVConfig(kv_transfer_mode=mode, prefetch_step=64, transfer_sync_level=level, anchor_ttl=ANCHOR_TTL)
            last = dice.choice((None, None, dice.randrange(2, 12)))
            await self._one(dice.choice(PROMPTS), dice.random() * 1.5, kv, dice.choice(SALTS), last)

    async def _one(self, prompt: str, seconds: float, kv: akv.KVConfig, salt: str, last: int | None) -> None:
        async with self._rt.start(self._graph, prompt, deps=seconds, kv=kv, cache_salt=salt) as run:
            said = await follow(run, last)
        assert run.state.end is not None
        self.seen.ends[run.state.end.type] += 1
        if run.state.end.type == "run_failed":
            assert self._dies, run.state.end
        self.seen.compare(f"agent {prompt[:9]} {salt}", said, self._truth.agents[prompt])
        if run.state.end.type == "run_finished":
            self.seen.resumed(run.report)

    async def _talks(self, dice: random.Random) -> None:
        while self._goes_on:
            name, salt = f"{SEED}/{dice.randrange(TALKS)}", dice.choice(SALTS)
            talker = self._talker(self._engine, dice, salt=salt)
            try:
                _, said = await talker.hold(name, TURNS)
            except akv.EngineError:
                assert self._dies
                return
            self.seen.compare(f"talk {name} {salt}", said, self._truth.talks[name])
            self.seen.moves += talker.moves

    async def _strangers(self, dice: random.Random) -> None:
        while self._goes_on:
            await anyio.sleep(dice.uniform(0.5, 2.0))
            ids = dice.choices(range(100, 40_000), k=dice.randrange(200, 1000))
            request = GenerateRequest(request_id=f"stranger/{next(self._names)}", token_ids=ids, max_tokens=1)
            try:
                async for _ in self._engine.generate(request):
                    pass
            except akv.EngineError:
                assert self._dies
                return

    async def _watch(self) -> None:
        while self._goes_on:
            used = (await self._engine.kv("stats", {}))["tier_used"]
            self.seen.fullest = max(self.seen.fullest, used)
            await anyio.sleep(0.2)


def kill_engine() -> None:
    """End the engine's process; of this process's children it is the one with a great deal of memory."""
    next(child for child in psutil.Process().children() if child.memory_info().rss > 1 << 28).kill()


async def left(engine: VLLMEngine) -> dict[str, Any]:
    """What is still held, once what ends by its time to live has ended."""
    stats = await engine.kv("stats", {})
    with anyio.move_on_after(20 * ANCHOR_TTL):
        while stats["leases"] or stats["free_blocks"] != stats["pool_blocks"] or any(stats["tier_moving"].values()):
            stats = await engine.kv("stats", {})
    names = ("leases", "leased_blocks", "runs", "runs_waiting", "prefetches", "held_requests", "live_requests")
    of_tier = ("tier_used", "tier_away", "tier_waiting", "tier_failed")
    return {**{name: stats[name] for name in (*names, *of_tier) if stats[name]}, **stats["errors"]} | (
        {} if stats["free_blocks"] == stats["pool_blocks"] else {"free_blocks": stats["free_blocks"]}
    )


async def live(engine: VLLMEngine, truth: Truth, talker: Any, life: int, *, dies: bool) -> Seen:
    """Half of the soak on one engine."""
    async with akv.Runtime(engine, kv=akv.KVConfig(anchor_ttl=ANCHOR_TTL)) as rt:
        load = Load(rt, engine, truth, talker, life)
        await load.run(SECONDS / 2, dies=dies)
    seen = load.seen
    print(f"life {life}: ends {dict(seen.ends)}, compared {dict(seen.same)}, moves {dict(seen.moves)}")
    print(f"   {seen.resumes} resumes, short of KV: {dict(seen.short)}; at most {seen.fullest} blocks in host memory")
    assert seen.wrong == []
    assert seen.short["nothing"] == 0, "a living chain lost KV and nothing says why"
    return seen


async def test_random_runs_leave_nothing_and_say_what_an_untouched_engine_says(engines: Any, talker: Any) -> None:
    print(f"soak of {SECONDS:g} s; repeat it with AGENTKV_SOAK_SEED={SEED}")
    truth = await Truth.of(await engines.get("float32"), talker)
    first = await live(await engines.get("tier"), truth, talker, 1, dies=True)
    assert set(first.ends) <= {"run_finished", "run_cancelled", "run_failed"}
    await engines.close()
    engine = await engines.get("tier")
    seen = await live(engine, truth, talker, 2, dies=False)
    stats = await engine.kv("stats", {})
    totals, records = stats["tier_totals"], stats["records"]
    print(f"   tier {totals}, records {records}")
    assert set(seen.ends) <= {"run_finished", "run_cancelled"}
    assert first.ends["run_cancelled"] + seen.ends["run_cancelled"] > 0
    assert await left(engine) == {}
    counts = await engine.stats()
    assert (counts["running"], counts["waiting"]) == (0, 0)
    assert max(first.fullest, seen.fullest) > 0.8 * stats["tier_slots"], "there was room for another chain all the time"
    assert totals["fetched"] > 0.5 * stats["tier_slots"]
