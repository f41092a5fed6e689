from collections.abc import Callable
from random import Random
from typing import Any

import pytest

Make = Callable[..., Any]
BLOCK = 4


def prompt(seed: int, n: int) -> list[int]:
    return [(seed * 131 + i * 7 + i // 100) % 900 for i in range(n)]


def events(core: Any, kind: str) -> list[dict[str, Any]]:
    return [each for each in core.call("events", after=0)["events"] if each["kind"] == kind]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_leased_chain_survives_what_evicts_an_unleased_one(make_core: Make, asynchronous: bool) -> None:
    for fields, hit in [({"run": "a", "ttl": 60.0}, 40), ({}, 0)]:
        core = make_core(asynchronous=asynchronous)
        core.one(prompt(1, 40), max_tokens=4, **fields)
        for n in range(6):
            core.one(prompt(10 + n, 60))
        assert core.one(prompt(1, 41))["cached"] == hit


@pytest.mark.parametrize(("generated", "blocks"), [(4, 10), (5, 11)])
def test_the_lease_holds_what_was_computed_and_no_more(make_core: Make, generated: int, blocks: int) -> None:
    # The last generated token never has KV: floor((prompt + output - 1) / block).
    report = make_core().one(prompt(1, 40), max_tokens=generated, run="a")
    assert (report["blocks"], report["handle"]["length"]) == (blocks, blocks * BLOCK)


def test_the_next_turn_extends_the_lease_and_its_handle(make_core: Make) -> None:
    core = make_core()
    first = core.one(prompt(1, 40), run="a")
    second = core.one(prompt(1, 60), run="a", lease=first["lease"], resume=True)
    assert (second["lease"], second["cached"], second["blocks"]) == (first["lease"], 40, 15)
    assert core.call("verify", token=first["lease"], handle=second["handle"])["reason"] is None
    assert core.call("verify", token=first["lease"], handle=first["handle"])["reason"].startswith("length")


def test_with_leases_on_everything_a_request_of_maximum_length_starts_in_the_next_step(make_core: Make) -> None:
    core = make_core(blocks=65, longest=256, settings={"kv_pool_ratio": 1.0})
    core.one(prompt(1, 80), run="anchor", lease_class="anchor", ttl=60.0)
    for n in range(4):
        core.one(prompt(10 + n, 44), run=f"chain{n}", ttl=60.0, expected_reuse=float(n))
    assert core.call("stats")["leased_blocks"] == 64
    assert core.free == 0
    name = core.add(prompt(99, 255))
    assert core.step().num_scheduled_tokens[name] == 64
    evicted = events(core, "lease.evict")
    assert [each["run"] for each in evicted] == [*(f"chain{n}" for n in range(3, -1, -1)), "anchor"]
    assert {each["for_whom"] for each in evicted} == {name}
    assert {each["reason"] for each in evicted} == {"room"}


def test_no_more_is_revoked_than_a_request_needs(make_core: Make) -> None:
    core = make_core(blocks=65, settings={"kv_pool_ratio": 1.0})
    for n in range(2):
        core.one(prompt(n, 120), run=f"r{n}", ttl=60.0)
    core.one(prompt(50, 40))
    assert sum(each["blocks"] for each in events(core, "lease.evict")) == 10 - 4
    assert core.call("stats")["leased_blocks"] == 60 - 6


def test_nothing_is_revoked_for_a_request_that_cannot_fit_beside_those_running(make_core: Make) -> None:
    core = make_core(blocks=65, settings={"kv_pool_ratio": 1.0}, batched=256)
    core.one(prompt(1, 40), run="a", ttl=60.0)
    core.add(prompt(2, 180), max_tokens=60)
    core.step()
    core.add(prompt(3, 120))
    core.step()
    assert not events(core, "lease.evict")


def test_a_requesters_own_chain_is_never_revoked_for_it(make_core: Make) -> None:
    core = make_core(blocks=65, settings={"kv_pool_ratio": 1.0})
    mine = core.one(prompt(1, 120), run="mine", ttl=60.0)
    core.one(prompt(2, 100), run="other", ttl=60.0, expected_reuse=0.0)
    report = core.one(prompt(1, 200), run="mine", lease=mine["lease"], ttl=60.0)
    assert report["cached"] == 120
    assert {each["run"] for each in events(core, "lease.evict")} == {"other"}


def test_a_chain_gives_way_to_its_own_resume_where_that_builds_on_doubles_of_it(make_core: Make) -> None:
    core = make_core(blocks=9, settings={"kv_pool_ratio": 1.0}, longest=32)
    # Asked at once, both compute the last block of the prompt: one of the two is found from then on, the other leased.
    core.add(prompt(1, 16))
    first = core.add(prompt(1, 16), max_tokens=9, run="r", ttl=60.0)
    core.run()
    chain = [*prompt(1, 16), *core.outputs[first]]
    report = core.one([*chain, *prompt(2, 5)], run="r", lease=core.reports[first]["lease"], ttl=60.0)
    assert report["cached"] == 24
    assert core.scheduler.kv.errors == {}


def test_a_growing_request_takes_leases_before_anyone_is_preempted(make_core: Make) -> None:
    core = make_core(blocks=33, settings={"kv_pool_ratio": 1.0}, longest=128)
    core.one(prompt(1, 60), run="idle", ttl=60.0)
    name = core.add(prompt(2, 60), max_tokens=40)
    core.run()
    assert len(core.outputs[name]) == 40
    assert core.scheduler.requests == {}
    assert sum(each["blocks"] for each in events(core, "lease.evict")) == 8


def test_dead_kv_that_a_request_uses_again_is_wanted_again(make_core: Make) -> None:
    core = make_core(blocks=41)
    core.one(prompt(2, 8), run="other", ttl=60.0)
    dead = core.one(prompt(1, 40), run="a", ttl=60.0)
    core.call("release", tokens=[dead["lease"]])
    assert core.scheduler.kv.unleased_blocks()["cached"] == 0
    assert core.one(prompt(1, 41))["cached"] == 40
    assert core.scheduler.kv.unleased_blocks()["cached"] == 10


def test_released_kv_goes_behind_the_uncached_and_before_the_least_recently_used(make_core: Make) -> None:
    core = make_core(blocks=41)
    core.one(prompt(1, 40))
    lease = core.one(prompt(2, 40), run="a")["lease"]
    assert core.call("release", tokens=[lease]) == {"reasons": [None]}
    core.one(prompt(3, 80))
    assert core.one(prompt(2, 41))["cached"] == 40, "twenty uncached blocks were there first"
    core = make_core(blocks=41)
    core.one(prompt(1, 40))
    lease = core.one(prompt(2, 40), run="a")["lease"]
    core.call("release", tokens=[lease])
    core.one(prompt(3, 120))
    assert core.one(prompt(1, 41))["cached"] == 40
    assert core.one(prompt(2, 41))["cached"] == 0


def test_speculative_leases_go_before_unleased_cached_blocks(make_core: Make) -> None:
    core = make_core(blocks=41, settings={"kv_pool_ratio": 1.0})
    core.one(prompt(1, 40))
    core.one(prompt(2, 40), run="guess", lease_class="speculative", ttl=60.0)
    core.one(prompt(3, 119), run="chain", ttl=60.0)
    assert core.one(prompt(1, 41))["cached"] == 40
    assert {each["run"] for each in events(core, "lease.evict")} == {"guess"}


def test_independent_mode_keeps_leases_out_of_it(make_core: Make) -> None:
    core = make_core(settings={"prefix_cache_mode": "independent"})
    assert core.one(prompt(1, 40), run="a")["reason"] == "prefix_cache_mode: independent takes no leases"
    for n in range(6):
        core.one(prompt(10 + n, 60))
    assert core.one(prompt(1, 41))["cached"] == 0


def test_an_abort_leaves_no_lease(make_core: Make) -> None:
    core = make_core()
    name = core.add(prompt(1, 40), max_tokens=50, run="a")
    core.step()
    core.abort(name)
    core.run()
    core.drain()
    assert core.call("stats")["leases"] == 0
    assert core.free == 63


def test_resetting_the_prefix_cache_drops_leases_and_makes_handles_stale(make_core: Make) -> None:
    core = make_core()
    report = core.one(prompt(1, 40), run="a")
    assert core.call("reset") == {"leases_dropped": 1, "epoch": 1, "done": True, "reason": None}
    assert core.free == 63
    again = core.one(prompt(1, 40), run="a", lease=report["lease"], handle=None)
    assert (again["cached"], again["handle"]["epoch"]) == (0, 1)
    core.one(prompt(2, 40), run="b")
    assert core.scheduler.reset_prefix_cache() is True
    assert core.call("info")["epoch"] == 2


def test_leases_expire_when_somebody_asks_though_the_engine_is_idle(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core()
    core.one(prompt(1, 40), run="a", ttl=5.0)
    later = core.scheduler.kv.now() + 6
    monkeypatch.setattr(core.scheduler.kv, "now", lambda: later)
    assert core.call("stats")["leases"] == 0
    assert core.free == 63


@pytest.mark.parametrize("asynchronous", [True, False])
def test_without_directives_every_step_is_stock_vllms(make_core: Make, asynchronous: bool) -> None:
    def trace(stock: bool) -> list[Any]:
        random = Random(5)
        core = make_core(stock=stock, asynchronous=asynchronous, blocks=40, batched=32, sequences=6, longest=128)
        seen: list[Any] = []
        for n in range(400):
            if random.random() < 0.3:
                core.add(prompt(random.randint(1, 5), random.randint(1, 60)), max_tokens=random.randint(1, 12))
            if random.random() < 0.05 and core.scheduler.requests:
                core.abort(random.choice(list(core.scheduler.requests)))
            step = core.step()
            blocks = {r: core.scheduler.kv_cache_manager.get_block_ids(r) for r in step.num_scheduled_tokens}
            seen.append((n, step.num_scheduled_tokens, blocks, sorted(step.finished_req_ids), core.cached.copy()))
        core.run(2000)
        return [*seen, core.outputs, core.free]

    assert trace(stock=False) == trace(stock=True)


def test_blocks_are_free_that_no_lease_holds(make_core: Make) -> None:
    core = make_core()
    pool = core.call("stats")["free_blocks"]
    report = core.one(list(range(40)), run="r", ttl=60.0)
    stats = core.call("stats")
    assert (stats["pool_blocks"], stats["free_blocks"]) == (pool, pool - report["blocks"])
    assert report["blocks"] > 0
    core.call("release", tokens=[report["lease"]])
    assert core.call("stats")["free_blocks"] == pool
