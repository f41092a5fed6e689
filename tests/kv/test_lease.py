from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import Directive, Lease, LeaseTable

Make = Callable[..., Any]


def test_a_finished_generation_leaves_a_lease_that_holds_its_blocks(make_bench: Make) -> None:
    bench = make_bench(10, kv_pool_ratio=1.0)
    grant = bench.run(4)
    assert grant.token is not None
    assert (grant.blocks, grant.handle.length) == (4, 64)
    assert bench.pool.free == 6


def test_the_next_generation_extends_the_lease_under_the_same_token(make_bench: Make) -> None:
    bench = make_bench(20)
    first = bench.run(4)
    held = bench.policy.leases.table.get(first.token).blocks
    second = bench.run(7, now=1.0, hits=held, lease=first.token)
    assert second.token == first.token
    assert (bench.policy.leases.table.held, len(bench.policy.leases.table)) == (7, 1)
    assert bench.policy.leases.handle_of(bench.policy.leases.table.get(first.token)).length == 112


def test_a_request_that_covers_less_of_the_chain_takes_nothing_away(make_bench: Make) -> None:
    bench = make_bench(20)
    first = bench.run(7)
    held = bench.policy.leases.table.get(first.token).blocks
    bench.run(3, now=1.0, hits=held[:3], lease=first.token)
    assert bench.policy.leases.table.get(first.token).blocks == held


def test_released_kv_is_the_next_to_go_behind_the_uncached_and_its_end_first(make_bench: Make) -> None:
    bench = make_bench(8, kv_pool_ratio=1.0)
    lru = bench.run(2, ttl=0.0)
    grant = bench.run(3)
    blocks = bench.policy.leases.table.get(grant.token).blocks
    assert bench.policy.leases.release(grant.token, 1.0) is None
    assert lru.reason == "ttl: 0 asks for no lease"
    assert bench.pool.take(6)[3:] == list(reversed(blocks)), "three uncached blocks, then the dead chain"


def test_a_lease_ends_with_its_time_to_live_and_a_renewal_moves_that(make_bench: Make) -> None:
    bench = make_bench(10)
    grant = bench.run(2, ttl=5.0)
    bench.policy.settle(4.9)
    assert bench.policy.leases.renew(grant.token, ttl=5.0, now=4.9, expected_reuse=1.0) is None
    bench.policy.settle(9.8)
    assert len(bench.policy.leases.table) == 1
    bench.policy.settle(9.9)
    assert (len(bench.policy.leases.table), bench.pool.free) == (0, 10)
    assert bench.kinds() == ["lease.grant", "lease.renew", "lease.expire"]


@pytest.mark.parametrize("call", ["renew", "release"])
def test_a_forged_token_changes_nothing_and_is_counted(make_bench: Make, call: str) -> None:
    bench = make_bench(10)
    bench.run(2)
    operation = getattr(bench.policy.leases, call)
    reason = operation("forged", ttl=9.0, now=0.0) if call == "renew" else operation("forged", 0.0)
    assert reason == "lease: no such token"
    assert bench.policy.records.counts["reject"] == 1
    assert bench.policy.leases.table.held == 2


def test_the_token_of_another_run_extends_nothing(make_bench: Make) -> None:
    bench = make_bench(20)
    mine = bench.run(2, run="mine")
    foreign = bench.run(3, run="foreign", lease=mine.token)
    assert foreign.token != mine.token
    assert len(bench.policy.leases.table.get(mine.token).blocks) == 2
    assert bench.policy.records.counts["reject"] == 1


def test_handles_are_verified_and_go_stale_by_eviction_and_by_reset(make_bench: Make) -> None:
    bench = make_bench(10, kv_pool_ratio=1.0)
    leases = bench.policy.leases
    grant = bench.run(6)
    assert leases.verify(grant.token, grant.handle, 0.0) is None
    assert leases.verify("forged", grant.handle, 0.0) == "lease: no such token"
    assert leases.verify(grant.token, evolve(grant.handle, owner="eve"), 0.0).startswith("owner")
    assert leases.make_room(2, 1.0, for_whom="big") == 2
    assert leases.verify(grant.token, grant.handle, 1.0).startswith("length")
    bench.policy.reset(2.0)
    again = bench.run(2, now=2.0)
    assert again.handle.epoch == 1
    assert leases.verify(again.token, evolve(again.handle, epoch=0), 2.0).startswith("epoch")


def test_a_stale_handle_in_a_directive_is_counted_and_the_lease_goes_on(make_bench: Make) -> None:
    bench = make_bench(20)
    first = bench.run(2)
    stale = evolve(first.handle, digest="00")
    second = bench.run(4, now=1.0, lease=first.token, handle=stale)
    assert second.token == first.token
    assert [r.reason.split(":")[0] for r in bench.policy.records.events()[0] if r.kind == "reject"] == ["digest"]


def test_making_room_cuts_ends_in_the_one_order_and_no_more_than_needed(make_bench: Make) -> None:
    bench = make_bench(12, kv_pool_ratio=1.0)
    for cls, reuse in [("anchor", None), ("chain", 1.0), ("chain", 9.0), ("branch", 1.0), ("speculative", 1.0)]:
        bench.run(2, run=f"{cls}-{reuse}", lease_class=cls, expected_reuse=reuse, ttl=99.0)
    assert bench.pool.free == 2
    assert bench.policy.leases.make_room(5, 1.0, for_whom="big") == 5
    evicted = [(r.run, r.blocks, r.for_whom) for r in bench.policy.records.events()[0] if r.kind == "lease.evict"]
    assert evicted == [("speculative-1.0", 2, "big"), ("branch-1.0", 2, "big"), ("chain-9.0", 1, "big")]


def test_nothing_is_cut_when_the_leases_cannot_suffice(make_bench: Make) -> None:
    bench = make_bench(10, kv_pool_ratio=1.0)
    bench.run(6)
    assert bench.policy.leases.make_room(7, 1.0) == 0
    assert bench.policy.leases.table.held == 6


def test_blocks_in_use_and_the_requesters_own_are_not_counted_as_room(make_bench: Make) -> None:
    bench = make_bench(10, kv_pool_ratio=1.0)
    grant = bench.run(6)
    blocks = bench.policy.leases.table.get(grant.token).blocks
    bench.pool.touch(blocks[:2])
    assert bench.policy.leases.make_room(5, 1.0) == 0, "two of six are in use by a running request"
    assert bench.policy.leases.make_room(4, 1.0, protect=frozenset(blocks[2:4])) == 0
    assert bench.policy.leases.make_room(2, 1.0, protect=frozenset(blocks[2:4])) == 2
    assert bench.policy.leases.table.get(grant.token).blocks == blocks[:4]


def test_a_lease_gives_what_the_requester_has_doubles_of(make_bench: Make) -> None:
    bench = make_bench(4, kv_pool_ratio=1.0)
    first, *rest = bench.policy.leases.table.get(bench.run(3).token).blocks
    (double,) = bench.pool.take(1)
    assert bench.policy.leases.make_room(1, 1.0, protect=frozenset([double, *rest])) == 3
    assert first in bench.pool.dead


def test_blocks_shared_by_leases_are_freed_when_all_of_them_let_go(make_bench: Make) -> None:
    bench = make_bench(10, kv_pool_ratio=1.0)
    trunk = bench.run(3, run="a")
    shared = bench.policy.leases.table.get(trunk.token).blocks
    bench.run(3, run="b", hits=shared)
    assert bench.policy.leases.table.held == 3
    assert bench.policy.leases.make_room(3, 1.0) == 3
    assert (len(bench.policy.leases.table), bench.pool.free) == (0, 10)


def test_the_budget_makes_lesser_leases_give_way_and_truncates_the_rest(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=0.5)
    bench.run(4, run="branch", lease_class="branch", expected_reuse=1.0)
    anchor = bench.run(8, run="anchor", lease_class="anchor")
    assert (anchor.blocks, bench.policy.leases.table.held) == (8, 10)
    chain = bench.run(6, run="chain")
    assert (chain.blocks, bench.policy.leases.table.held) == (2, 10)
    assert bench.run(3, run="guess", lease_class="speculative").reason == "budget: kv_pool_ratio is spent"
    evicted = {r.run for r in bench.policy.records.events()[0] if r.kind == "lease.evict"}
    assert evicted == {"branch"}


def test_a_prefetchs_lease_displaces_speculative_leases_only(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=0.5)
    bench.run(6, run="branch", lease_class="branch")
    bench.run(4, run="guess", lease_class="speculative")
    got = bench.run(6, run="ahead", kind="prefill", lease_class="chain", expected_reuse=0.0)
    assert got.blocks == 4
    assert {r.run for r in bench.policy.records.events()[0] if r.kind == "lease.evict"} == {"guess"}
    assert bench.policy.leases.make_room(1, 0.0, only_speculative=True) == 0


def test_independent_mode_takes_no_leases(make_bench: Make) -> None:
    bench = make_bench(10, prefix_cache_mode="independent")
    assert bench.run(4).token is None
    assert (bench.pool.free, bench.policy.leases.table.held) == (10, 0)


def test_less_than_a_block_leaves_no_lease(make_bench: Make) -> None:
    assert make_bench(10).run(0).reason == "length: less than a block"


def test_the_prefetch_limit_holds_per_run_and_comes_free_again(make_bench: Make) -> None:
    policy = make_bench(10, branch_prefetch_limit=2).policy
    ahead = Directive(run="r", kind="prefill")
    assert [policy.start(ahead, f"p{n}", 0.0) is None for n in range(3)] == [True, True, False]
    assert policy.start(Directive(run="other", kind="prefill"), "p9", 0.0) is None
    policy.abort(ahead, "p0", 0.0)
    policy.abort(ahead, "p2", 0.0)
    assert policy.start(ahead, "p3", 0.0) is None
    assert policy.prefetches.of_run("r") == 2


def test_leases_that_could_not_make_room_are_asked_again_when_a_request_ends(make_bench: Make) -> None:
    bench = make_bench(size=40)
    grant = bench.run(10, ttl=60.0)
    blocks = bench.policy.leases.table.get(grant.token).blocks
    bench.pool.touch(blocks)  # a request builds on the chain: its lease's end would free nothing
    assert bench.policy.leases.make_room(8, 0.0) == 0
    bench.pool.finish(blocks)
    assert bench.policy.leases.make_room(8, 0.01) == 0, "not looked at in every step"
    bench.policy.abort(Directive(run="r"), "q", 0.01)
    assert bench.policy.leases.make_room(8, 0.01) == 8


CLASSES = ("anchor", "chain", "branch", "speculative")
SOME_LEASES = st.lists(st.tuples(st.sampled_from(CLASSES), st.sets(st.integers(0, 19), min_size=1)), max_size=8)


@given(SOME_LEASES)
def test_a_block_is_counted_once_for_the_class_that_goes_last(
    pool_class: Any, leases: list[tuple[Any, set[int]]]
) -> None:
    pool = pool_class(20)
    pool.finish(pool.take(20))
    table = LeaseTable(pool, 20)
    for number, (lease_class, blocks) in enumerate(leases):
        table.put(lease_of(number, lease_class, sorted(blocks)))
    seen: set[int] = set()
    for name in CLASSES:
        held = set().union(*(blocks for lease_class, blocks in leases if lease_class == name))
        assert table.by_class()[name] == len(held - seen)
        seen |= held


def lease_of(number: int, lease_class: Any, blocks: list[int]) -> Lease:
    return Lease(
        token=f"t{number}",
        serial=number,
        run="r",
        owner="",
        ticket="",
        lease_class=lease_class,
        blocks=tuple(blocks),
        digests=tuple(b"%d" % block for block in blocks),
        expected_reuse=None,
        expires=99.0,
        used=0.0,
    )
