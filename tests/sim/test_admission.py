"""Admission on the simulated engine: who starts when, and that nothing is left behind."""

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from agentkv.errors import EngineError

Make = Callable[..., Any]

BLOCK = 32


def text(which: int, count: int) -> list[int]:
    return list(range(which * 100_000, which * 100_000 + count))


class Run:
    """A client's run: declares its working set, asks once, and leaves after its life."""

    def __init__(self, client: Any, name: str, blocks: int, log: list[str], *, life: float = 10.0) -> None:
        self.client, self.name, self.blocks, self.log, self.life = client, name, blocks, log, life

    async def live(self) -> None:
        clock = self.client.engine.clock
        ticket = (await self.client.admit(self.name, self.blocks, ttl=1000.0))["ticket"]
        await self.client.ask([len(self.log), *text(7, 40)], 1, run=self.name, ticket=ticket, ttl=60.0)
        self.log.append(self.name)
        await clock.sleep(self.life)
        assert await self.client.call("leave", tickets=[ticket]) == {"reasons": [None]}


async def in_turn(client: Any, runs: list[Run]) -> None:
    async with client.engine:
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(run.live)
                await client.engine.clock.sleep(0.01)
        await client.at_rest()


async def test_first_come_first_served_and_nobody_is_passed_for_ever(managed: Make) -> None:
    log: list[str] = []
    client = managed(pool_blocks=100, settings={"kv_pool_ratio": 1.0, "max_bypass": 2})
    sizes = {"a": 60, "large": 60, "s1": 10, "s2": 10, "s3": 10, "last": 60}
    await in_turn(client, [Run(client, name, blocks, log) for name, blocks in sizes.items()])
    # s1 and s2 pass the large one; s3 would fit too, and waits behind it.
    assert log == ["a", "s1", "s2", "large", "s3", "last"]


async def test_a_run_larger_than_the_pool_runs_alone(managed: Make) -> None:
    log: list[str] = []
    client = managed(pool_blocks=100)
    alone: list[int] = []

    class Watched(Run):
        async def live(self) -> None:
            await super().live()
            alone.append((await self.client.engine.stats())["runs"])

    runs: list[Run] = [
        Run(client, "before", 10, log),
        Watched(client, "giant", 1000, log),
        Run(client, "after", 10, log),
    ]
    await in_turn(client, runs)
    # The small one fits beside the first and passes; then the giant has the engine to itself.
    assert log == ["before", "after", "giant"]
    assert alone == [0]


async def test_while_the_giant_runs_nobody_else_starts(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine:
        assert (await client.admit("giant", 1000))["state"] == "admitted"
        waits = await client.admit("small", 1)
        assert (waits["state"], waits["position"]) == ("queued", 1)


async def test_a_child_of_an_admitted_run_never_waits(managed: Make) -> None:
    client = managed(pool_blocks=100, settings={"kv_pool_ratio": 1.0})
    async with client.engine:
        parent = await client.admit("parent", 100)
        queued = await client.admit("other", 10)
        child = await client.admit("child", 50, parent=parent["ticket"])
        assert (queued["state"], child["state"]) == ("queued", "admitted")
        last = await client.ask(text(1, 100), run="child", ticket=child["ticket"])
        assert last.usage.queue_s == 0.0
        await client.call("leave", tickets=[parent["ticket"]])
        # The child left with its parent, so there is room.
        states = await client.call("heartbeat", tickets=[queued["ticket"], child["ticket"]], ttl=60.0)
        assert [run and run["state"] for run in states["runs"]] == ["admitted", None]


async def test_a_client_that_dies_frees_its_place_and_its_kv(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine as engine:
        dead = await client.admit("dead", 80, ttl=5.0)
        await client.ask(text(1, 640), run="dead", ticket=dead["ticket"], ttl=600.0)
        assert (await engine.stats())["leased_blocks"] == 20
        waiting = await client.admit("waiting", 80, ttl=60.0)
        # The engine idles meanwhile: nothing but time lets the request in.
        last = await client.ask(text(2, 100), 1, run="waiting", ticket=waiting["ticket"], ttl=0.0)
        assert last.at - last.usage.prefill_s == pytest.approx(5.0)
        assert last.usage.queue_s > 0
        stats = await engine.stats()
        assert (stats["leased_blocks"], stats["runs"]) == (0, 1)
        assert (await client.records("admission.expire"))[0]["run"] == "dead"


async def test_a_request_held_for_admission_does_not_stand_in_anybodys_way(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine as engine, anyio.create_task_group() as group:
        first = await client.admit("first", 80)
        second = await client.admit("second", 80)
        group.start_soon(lambda: client.ask(text(1, 64), run="second", ticket=second["ticket"], resume=True))
        await engine.clock.sleep(1.0)
        stats = await engine.stats()
        assert (stats["held_requests"], stats["waiting"], stats["running"]) == (1, 1, 0)
        assert (await client.ask(text(2, 64), tell=False)).usage.queue_s == 0.0
        with pytest.raises(EngineError, match="the run waits for admission"):
            await client.ahead(text(3, 64), run="second", ticket=second["ticket"])
        await client.call("leave", tickets=[first["ticket"]])


async def test_a_held_request_can_be_given_up(managed: Make) -> None:
    client = managed(pool_blocks=100)
    async with client.engine as engine:
        first, second = await client.admit("first", 80), await client.admit("second", 80)
        async with engine.clock.deadline(3.0) as scope:
            await client.ask(text(1, 64), name="twice", run="second", ticket=second["ticket"])
        assert scope.cancelled_caught
        assert (await engine.stats())["held_requests"] == 0
        await client.call("leave", tickets=[first["ticket"]])
        await client.ask(text(1, 64), name="twice", run="second", ticket=second["ticket"], ttl=0.0)
        await client.call("leave", tickets=[second["ticket"]])
        await client.at_rest()


async def test_the_youngest_run_is_paused_where_those_alive_outgrow_the_pool(managed: Make) -> None:
    client = managed(pool_blocks=100, settings={"kv_pool_ratio": 1.0})
    async with client.engine as engine, anyio.create_task_group() as group:
        old, young = await client.admit("old", 40), await client.admit("young", 40)
        for run, ticket, which in (("old", old, 1), ("young", young, 2)):
            await client.ask(text(which, 640), run=run, ticket=ticket["ticket"], ttl=600.0)
        await client.call("update", ticket=old["ticket"], blocks=75)
        assert (await engine.stats())["leases_by_class"] == {"chain": 1, "speculative": 1}
        started: list[float] = []

        async def resume() -> None:
            await client.ask(text(2, 640), run="young", ticket=young["ticket"], resume=True)
            started.append(engine.clock.now())

        group.start_soon(resume)
        await engine.clock.sleep(20.0)
        assert started == []
        await client.call("leave", tickets=[old["ticket"]])
        await engine.clock.sleep(1.0)
        assert len(started) == 1


async def test_two_clients_cannot_overcommit_the_pool_together(managed: Make) -> None:
    client = managed(pool_blocks=200)
    peak: list[tuple[int, int]] = []

    async def agent(which: int, dice: random.Random) -> None:
        clock = client.engine.clock
        await clock.sleep(dice.random())
        blocks = dice.randint(20, 60)
        ticket = (await client.admit(f"run{which}", blocks, ttl=600.0))["ticket"]
        chain, lease = text(which, 320), None
        for _ in range(3):
            last = await client.ask(chain, 8, run=f"run{which}", ticket=ticket, lease=lease, ttl=60.0)
            lease, chain = last.grant.token, [*chain, *range(5000, 5008), *range(77, 100)]
            stats = await client.engine.stats()
            peak.append((stats["planned_blocks"], stats["leased_blocks"]))
            await clock.sleep(dice.random() * 3)
        await client.call("leave", tickets=[ticket])

    async def process(first: int) -> None:
        dice = random.Random(first)
        async with anyio.create_task_group() as group:
            for which in range(first, first + 20):
                group.start_soon(agent, which, dice)

    async with client.engine:
        async with anyio.create_task_group() as group:
            group.start_soon(process, 0)
            group.start_soon(process, 20)
        assert max(planned for planned, _ in peak) <= 200, "the pool"
        assert max(leased for _, leased in peak) <= 170
        assert max(planned for planned, _ in peak) > 120, "there was competition for the pool"
        stats = await client.engine.stats()
        assert (stats["preemptions"], stats["records"].get("lease.evict:chain", 0)) == (0, 0)
        await client.at_rest()


class Crowd:
    """Clients that do at random what clients do, and sometimes die in the middle of it."""

    def __init__(self, client: Any, seed: int) -> None:
        self.client, self.dice = client, random.Random(seed)
        self.gave_up = self.dropped = self.died = 0

    async def one(self, which: int) -> None:
        clock, dice, run = self.client.engine.clock, self.dice, f"run{which}"
        await clock.sleep(dice.random() * 30)
        ticket = None
        if dice.random() < 0.8:
            ticket = (await self.client.admit(run, dice.randint(5, 60), ttl=dice.choice([8.0, 40.0])))["ticket"]
        chain, lease = text(dice.randint(1, 20), dice.randint(20, 600)), None
        for _ in range(dice.randint(1, 5)):
            async with clock.deadline(dice.choice([None, 0.05, 1.0, 20.0])) as scope:
                fields = {"run": run, "ticket": ticket, "lease": lease, "resume": dice.random() < 0.5}
                last = await self.client.ask(chain, dice.randint(1, 20), ttl=dice.choice([0.0, 5.0, 60.0]), **fields)
                lease = last.grant.token or lease
            self.gave_up += scope.cancelled_caught
            await self.between(run, ticket, lease, chain)
            chain = [*chain, *text(dice.randint(1, 20), 40)]
        if ticket is not None and dice.random() < 0.8:
            await self.client.call("leave", tickets=[ticket])
        else:
            self.died += 1

    async def between(self, run: str, ticket: str | None, lease: str | None, chain: list[int]) -> None:
        clock, dice = self.client.engine.clock, self.dice
        if dice.random() < 0.5:
            async with clock.deadline(dice.choice([None, 0.1])):
                try:
                    await self.client.ahead([*chain, *text(21, dice.randint(1, 400))], run=run, ticket=ticket, ttl=5.0)
                except EngineError:
                    self.dropped += 1
        if lease is not None and dice.random() < 0.5:
            leases = [{"token": lease, "ttl": 20.0, "class": dice.choice(["chain", "branch", "speculative", "anchor"])}]
            await self.client.call("renew", leases=leases)
        if lease is not None and dice.random() < 0.2:
            await self.client.call("release", tokens=[lease])
        if ticket is not None and dice.random() < 0.3:
            await self.client.call("update", ticket=ticket, blocks=dice.randint(5, 90))
        await clock.sleep(dice.random() * 3)
        self.client.engine.check_integrity()


@pytest.mark.parametrize("seed", range(3))
async def test_two_hundred_clients_leave_nothing_behind(managed: Make, seed: int) -> None:
    client = managed(
        preset="h200", pool_blocks=150, max_model_len=2000, max_num_seqs=16, settings={"prefetch_step": 64}
    )
    crowd = Crowd(client, seed)
    async with client.engine:
        async with anyio.create_task_group() as group:
            for which in range(200):
                group.start_soon(crowd.one, which)
        stats = await client.engine.stats()
        assert min(crowd.gave_up, crowd.dropped, crowd.died) > 0
        assert stats["records"]["lease.evict:chain"] > 10, "there was pressure"
        assert stats["records"]["admission.expire"] > 5
        await client.engine.clock.sleep(100.0)
        await client.at_rest()
