"""No request ever reads KV that is not that of its own tokens, whatever is leased, revoked, dropped or preempted."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from agentkv.plugin.commands import Ended, TierReport

Make = Callable[..., Any]
BLOCK = 4


class Memory:
    """What the KV slots would hold: each write leaves a hash of all tokens up to its position."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.slots: dict[int, int] = {}
        self.hashes: dict[str, list[int]] = {}
        self.checked = 0
        core.on_step.append(self.step)

    def expected(self, name: str, n: int) -> list[int]:
        """Hashes of the request's first ``n`` prefixes; tokens still in flight are known, as they follow a rule."""
        known = self.hashes.setdefault(name, [])
        request = self.core.scheduler.requests[name]
        prompt = request.prompt_token_ids
        while len(known) < n:
            at = len(known)
            token = prompt[at] if at < len(prompt) else self.core.token(name, at - len(prompt))
            known.append(hash((known[-1] if known else 0, token)))
        return known

    def step(self, step: Any) -> None:
        manager = self.core.scheduler.kv_cache_manager
        spans = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        spans.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        tables = {name: manager.get_block_ids(name)[0] for name in step.num_scheduled_tokens}
        for name, n in step.num_scheduled_tokens.items():
            hashes = self.expected(name, spans[name] + n)
            for at in range(spans[name], spans[name] + n):
                self.slots[tables[name][at // BLOCK] * BLOCK + at % BLOCK] = hashes[at]
        # Within a step every layer writes all its KV before it attends.
        for name, n in step.num_scheduled_tokens.items():
            hashes = self.expected(name, spans[name] + n)
            for at in range(spans[name] + n):
                held = self.slots.get(tables[name][at // BLOCK] * BLOCK + at % BLOCK)
                assert held == hashes[at], f"{name} reads foreign or uncomputed KV at position {at}"
            self.checked += 1


class Crowd:
    """Agents at random: chains that grow by turns, branches, prefetches, strangers, aborts, releases, resets."""

    def __init__(self, core: Any, random: Random) -> None:
        self.core = core
        self.random = random
        self.chains: dict[str, list[int]] = {f"run{n}": self.text(random.randint(8, 40)) for n in range(4)}
        self.leases: dict[str, str] = {}
        self.owners: dict[str, str] = {}

    def text(self, n: int) -> list[int]:
        return [self.random.randint(0, 899) for _ in range(n)]

    def act(self) -> None:
        what = self.random.choices(
            ["turn", "ahead", "stranger", "abort", "release", "call", "restart"], [5, 5, 3, 2, 1, 1, 1]
        )[0]
        getattr(self, what)()

    def turn(self) -> None:
        run = self.random.choice(list(self.chains))
        self.chains[run] = (self.chains[run] + self.text(self.random.randint(1, 12)))[:110]
        fields: dict[str, Any] = {"lease": self.leases.get(run), "resume": self.random.random() < 0.7}
        fields["lease_class"] = self.random.choice(["anchor", "chain", "chain", "branch", "speculative"])
        fields["expected_reuse"] = self.random.choice([None, 1.0, 5.0])
        fields["ttl"] = self.random.choice([0.0, 60.0])
        name = self.core.add(self.chains[run], max_tokens=self.random.randint(1, 8), run=run, **fields)
        self.owners[name] = run

    def ahead(self) -> None:
        run = self.random.choice(list(self.chains))
        tokens = (self.chains[run] + self.text(self.random.randint(0, 20)))[:120]
        self.core.add(tokens, run=run, kind="prefill", lease_class=self.random.choice(["chain", "speculative"]))

    def stranger(self) -> None:
        self.core.add(self.text(self.random.randint(1, 60)), max_tokens=self.random.randint(1, 20))

    def abort(self) -> None:
        if live := list(self.core.scheduler.requests):
            self.core.abort(self.random.choice(live))

    def release(self) -> None:
        if self.leases:
            self.core.call("release", tokens=[self.leases.pop(self.random.choice(list(self.leases)))])

    def call(self) -> None:
        self.core.call("renew", leases=[{"token": token, "ttl": 60} for token in self.leases.values()])

    def restart(self) -> None:
        run = self.random.choice(list(self.chains))
        self.chains[run] = self.text(self.random.randint(8, 40))

    def collect(self) -> None:
        for name, run in list(self.owners.items()):
            if name in self.core.finished:
                report = self.core.reports[name] or {}
                if report.get("lease"):
                    self.leases[run] = report["lease"]
                del self.owners[name]


class Copies:
    """Workers that copy blocks of a ``Memory`` to host memory and back, each in its own time, some badly."""

    def __init__(self, memory: Memory, random: Random, *, failing: float = 0.0) -> None:
        self.memory, self.random, self.failing = memory, random, failing
        self.host: dict[int, list[int | None]] = {}
        self.going: list[tuple[Any, int]] = []
        self.moved = Counter[str]()
        memory.core.on_step.append(self.step)
        memory.core.report = self.report

    def step(self, step: Any) -> None:
        for command in step.kv_connector_metadata.commands:
            if command.out:
                self.copy(command)
            self.going.append((command, self.random.randint(0, 4)))

    def copy(self, command: Any) -> None:
        slots = self.memory.slots
        for block, slot in zip(command.blocks, command.slots, strict=True):
            places = range(block * BLOCK, block * BLOCK + BLOCK)
            if command.out:
                self.host[slot] = [slots.get(at) for at in places]
            else:
                slots.update(zip(places, self.host[slot], strict=True))
        self.moved["out" if command.out else "back"] += len(command.blocks)

    def report(self) -> Any:
        ended = {}
        for command, steps in self.going:
            if steps == 0:
                failed = frozenset(p for p in range(len(command.blocks)) if self.random.random() < self.failing)
                if not command.out:
                    self.copy(command)
                    for place in failed:
                        self.memory.slots.update(
                            dict.fromkeys(
                                range(command.blocks[place] * BLOCK, command.blocks[place] * BLOCK + BLOCK), -1
                            )
                        )
                ended[command.number] = Ended(failed=failed, seconds=0.001)
        self.going = [(command, steps - 1) for command, steps in self.going if steps > 0]
        return TierReport(ended) if ended else None


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_with_a_second_tier_no_request_reads_foreign_kv_either(make_core: Make, asynchronous: bool, seed: int) -> None:
    random = Random(seed)
    core = make_core(
        asynchronous=asynchronous,
        blocks=random.choice([40, 60, 90]),
        batched=random.choice([16, 32]),
        sequences=6,
        longest=128,
        settings={"prefetch_step": 8, "kv_pool_ratio": 1.0, "tier_reserve": random.choice([0.0, 0.3])},
        tier_blocks=random.choice([12, 60, 200]),
    )
    core.scheduler.kv.policy.tier.cost.latency = 0.0
    memory, crowd = Memory(core), Crowd(core, random)
    copies = Copies(memory, random, failing=random.choice([0.0, 0.02]))
    for _ in range(700):
        if random.random() < 0.35:
            crowd.act()
        core.step()
        crowd.collect()
    core.run(4000)
    crowd.collect()
    assert memory.checked > 500
    assert core.scheduler.kv.errors == {}
    assert copies.moved["out"]
    assert copies.moved["back"]
    tier = core.scheduler.kv.policy.tier
    tier.mover.copies.check_integrity()
    assert core.scheduler.reset_prefix_cache()
    assert tier.mover.copies.free == tier.mover.copies.slots
    stats = core.call("stats")
    assert (stats["tier_moving"], stats["tier_waiting"]) == ({"demote": 0, "promote": 0}, 0)
    assert stats["free_blocks"] == stats["pool_blocks"] == core.free


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_no_block_is_offered_as_a_hit_that_was_not_computed(make_core: Make, asynchronous: bool, seed: int) -> None:
    random = Random(seed)
    core = make_core(
        asynchronous=asynchronous,
        blocks=random.choice([40, 60, 90]),
        batched=random.choice([16, 32]),
        sequences=6,
        longest=128,
        settings={"prefetch_step": random.choice([3, 8, 16]), "kv_pool_ratio": 1.0},
    )
    memory, crowd = Memory(core), Crowd(core, random)
    for _ in range(1000):
        if random.random() < 0.35:
            crowd.act()
        core.step()
        crowd.collect()
    core.run(4000)
    crowd.collect()
    assert memory.checked > 1000
    assert core.scheduler.kv is not None
    assert core.scheduler.kv.errors == {}
    stats = core.call("stats")
    assert stats["records"].get("lease.evict:chain"), "there was pressure"
    assert (stats["held_requests"], stats["live_requests"], stats["prefetches"]) == (0, 0, 0)
    core.scheduler.reset_prefix_cache()
    stats = core.call("stats")
    assert stats["free_blocks"] == stats["pool_blocks"] == core.free
    assert core.free == core.scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1
    assert set(core.finished) <= set(core.outputs)


def test_the_check_itself_sees_trap_one(make_core: Make) -> None:
    # Hash a block that nothing has computed and let a request hit it: the check above must notice.
    core = make_core()
    memory = Memory(core)
    core.one(list(range(20)), run="r", ttl=60.0)
    memory.slots.clear()
    core.add(list(range(24)))
    with pytest.raises(AssertionError, match="foreign or uncomputed"):
        core.step()
