"""The second tier's decisions, over a pool with contents: nothing is lost, nothing wrong is ever found."""

from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentkv.kv import Directive, KVPolicy, PolicySettings

SIZE, SLOTS = 40, 30


class World:
    """A policy with a second tier, chains that grow, and a copier that the test drives."""

    pools: Any = None

    def __init__(self, size: int = SIZE, slots: int = SLOTS, *, least: float = 0.0, **fields: Any) -> None:
        self.pool = World.pools(size, slots)
        tokens = count(1)
        self.policy = KVPolicy(
            PolicySettings(**{"kv_pool_ratio": 1.0, "cpu_tier_bytes": slots * 1000, "admission": "none", **fields}),
            holder=self.pool,
            pool_blocks=size,
            block_size=16,
            engine_id="engine",
            mint=lambda: f"token-{next(tokens)}",
            bytes_per_block=1000,
            host=self.pool,
            slots=slots,
        )
        assert self.policy.tier is not None
        self.tier = self.policy.tier
        self.tier.cost.latency = least
        self.going: list[Any] = []
        # Called off while they read: their blocks are free, and what they bring is thrown away.
        self.void: set[int] = set()
        self.now = 0.0
        self.names = count()

    @staticmethod
    def digests(chain: str, n: int) -> list[bytes]:
        return [f"{chain}/{place}".encode() for place in range(n)]

    def hits(self, digests: list[bytes]) -> list[int]:
        found: list[int] = []
        for digest in digests:
            block = self.pool.find(digest)
            if block is None:
                break
            found.append(block)
        return found

    def ask(self, chain: str, n: int, **fields: Any) -> tuple[Any, int] | None:
        """A request over ``n`` blocks of a chain, to its end at once: its grant and what it computed, or None."""
        digests, name = self.digests(chain, n), f"{chain}/{next(self.names)}"
        found = self.hits(digests)
        lease = fields.get("lease")
        if self.tier.wanted(name, digests, len(found), self.now, owner="", lease=lease):
            self.tier.forget(name)
            return None
        self.pool.touch(found)
        short = n - len(found) - self.pool.free
        if short > 0:
            protect = frozenset(found)
            got = self.policy.leases.make_room(short, self.now, for_whom=name, protect=protect, may_wait=True)
            if got < short:
                self.pool.finish(found)
                return None
        blocks = [*found, *self.pool.take(n - len(found))]
        self.pool.compute(blocks[len(found) :], digests[len(found) :])
        directive = Directive(**{"run": chain, "ttl": 1e3, **fields})
        grant = self.policy.finish(directive, name, blocks, digests, self.now)
        self.pool.finish(blocks)
        return grant, n - len(found)

    def start(self) -> None:
        self.going += self.tier.start()

    def land(self, which: int = 0, failing: frozenset[int] = frozenset()) -> None:
        transfer = self.going.pop(which)
        if transfer.number not in self.void:
            self.pool.carry_out(transfer, tuple(failing))
        self.tier.done(transfer.number, failing, 0.001, self.now)

    def settle(self) -> None:
        """Carry out all transfers that are due, in order."""
        self.start()
        while self.going:
            self.land()
            self.start()

    def until(self, chain: str, n: int, **fields: Any) -> tuple[Any, int]:
        """``ask`` in steps, with transfers carried out between them, as long as the request waits."""
        for _ in range(20):
            self.tier.tick(self.now)
            if (answer := self.ask(chain, n, **fields)) is not None:
                return answer
            self.settle()
        raise AssertionError(f"{chain} waits for ever")

    def sent_away(self, chain: str, n: int) -> str:
        """The token of a chain of ``n`` blocks that is in host memory alone, as far as leases go."""
        token: str = self.until(chain, n)[0].token
        assert self.tier.demote(token, 0.0) is None
        self.settle()
        return token

    def come_to_rest(self) -> None:
        """Steps without a request until nothing is moved any more."""
        for _ in range(20):
            self.tier.tick(self.now)
            self.start()
            if not self.going:
                return
            self.settle()
        raise AssertionError("blocks are moved for ever")

    def kinds(self) -> list[str]:
        return [record.kind for record in self.policy.records.events()[0]]

    def check(self) -> None:
        leased = {block for lease in self.policy.leases.table for block in lease.blocks}
        moving = self.tier.mover.held_blocks()
        for block in range(self.pool.size):
            assert self.pool.ref_count(block) == (block in leased) + moving.count(block), block
        self.pool.check_contents()
        self.tier.mover.copies.check_integrity()
        copies = self.tier.mover.copies
        for lease in self.policy.leases.table:
            assert len(lease.blocks) <= len(lease.digests)
            for block, digest in zip(lease.blocks, lease.digests, strict=False):
                assert self.pool.names[block] == digest
            for digest in lease.away:
                assert copies.ready(digest), "a lease counts on a copy that is not there"
                assert self.pool.slots[copies.slot(digest)] == digest

    def waiting_or_going(self, kind: str) -> bool:
        return any(each.kind == kind for each in (*self.going, *self.waiting()))

    def reset(self) -> None:
        self.void |= {each.number for each in self.going if each.kind == "demote"}
        self.policy.reset(self.now)
        with self.tier.mover.emptying():
            assert self.pool.free_blocks == self.pool.size, "nothing stands against emptying the pool's cache"

    def waiting(self) -> list[Any]:
        return self.tier.mover.queue.not_begun()


@pytest.fixture(autouse=True)
def _pools(two_tiers: Any) -> None:
    World.pools = two_tiers


def test_a_waiting_chain_leaves_for_one_that_needs_the_room_and_comes_back_whole() -> None:
    world = World()
    first, _ = world.until("a", 25)
    world.until("b", 25)
    world.check()
    lease = world.policy.leases.table.get(first.token)
    assert lease.away
    assert lease.digests == tuple(world.digests("a", 25))
    _, computed = world.until("a", 26, lease=first.token)
    assert computed == 1
    assert "lease.evict" not in world.kinds()
    world.check()


def test_a_chain_that_was_to_leave_later_and_ends_before_leaves_nothing_behind() -> None:
    world = World()
    grant, _ = world.until("a", 10)
    used = world.hits(world.digests("a", 10))
    world.pool.touch(used)
    assert world.tier.demote(grant.token, 0.0) is None
    world.settle()
    assert world.tier._out._late == {grant.token}
    world.policy.leases.release(grant.token, 1.0)
    world.pool.finish(used)
    assert (world.tier._out.asleep, world.tier._out._late) == (set(), set())
    world.check()


def test_chains_that_come_back_ahead_do_not_take_turns_in_the_room_that_a_request_waits_for() -> None:
    world = World(10, tier_reserve=0.0)
    for chain in "ab":
        token = world.sent_away(chain, 4)
        # No longer asleep: it may come back ahead of need.
        world.tier.arrived("r", token)
        world.tier.forget("r")
    for _ in range(8):
        while world.going:
            world.land()
        world.tier.tick(world.now)
        world.start()
        if (answer := world.ask("large", 10)) is not None:
            break
    assert answer is not None, "what leaves for it makes way for the other"
    assert "lease.evict" not in world.kinds()
    world.check()


def test_without_pressure_nothing_is_copied() -> None:
    world = World(tier_reserve=0.25)
    world.until("a", 10)
    world.tier.tick(0.0)
    world.start()
    assert world.going == []


def test_under_pressure_chains_are_copied_ahead_and_then_leave_at_once() -> None:
    world = World(tier_reserve=0.5)
    world.until("a", 25, expected_reuse=50.0)
    world.tier.tick(0.0)
    world.settle()
    world.check()
    assert world.ask("b", 30) is not None, "room was free to be made"
    assert world.going == []
    assert world.kinds().count("lease.demote") == 1


def test_unchanged_blocks_are_not_copied_again() -> None:
    world = World(tier_reserve=0.5)
    token = world.until("a", 25)[0].token
    for n in range(3):
        world.until(f"b{n}", 30)
        world.settle()
        world.policy.leases.release(next(x.token for x in world.policy.leases.table if x.run == f"b{n}"), 0.0)
        world.until("a", 26 + n, lease=token)
    own = [e for e in world.policy.records.events()[0] if e.kind == "transfer" and e.run == "a"]
    assert sum(e.blocks for e in own if e.reason == "demote") <= 28
    assert sum(e.blocks for e in own if e.reason == "promote") >= 40


def test_the_farthest_wanted_goes_first_and_anchors_stay() -> None:
    world = World(size=60, slots=60, tier_reserve=0.0)
    anchor = world.until("z", 10, lease_class="anchor")[0]
    near = world.until("near", 20, expected_reuse=1.0)[0]
    far = world.until("far", 20, expected_reuse=90.0)[0]
    world.until("new", 25)
    table = world.policy.leases.table
    assert table.get(far.token).away
    assert not table.get(near.token).away
    assert not table.get(anchor.token).away


def test_a_chain_whose_request_has_come_does_not_leave_for_others() -> None:
    world = World(size=60, slots=60, tier_reserve=0.9)
    first = world.until("a", 25, expected_reuse=90.0)[0].token
    second = world.until("b", 25, expected_reuse=1.0)[0].token
    world.tier.tick(0.0)
    world.settle()
    directive = Directive(run="a", ttl=1e3, lease=first)
    world.policy.start(directive, "q", 0.0)
    world.until("new", 25)
    table = world.policy.leases.table
    assert not table.get(first).away, "it is wanted now, though it was the first to go"
    assert table.get(second).away
    world.policy.abort(directive, "q", 0.0)
    world.policy.leases.release(second, 0.0)
    world.until("newer", 50)
    assert table.get(first).away
    world.check()


def test_copies_ahead_of_need_displace_nothing_that_is_in_host_memory_alone() -> None:
    world = World(size=40, slots=20, tier_reserve=0.0)
    far = world.until("far", 18, expected_reuse=90.0)[0].token
    world.tier.demote(far, 0.0)
    world.settle()
    world.until("near", 30, expected_reuse=5.0)
    world.tier._reserve = 40
    world.tier.tick(0.0)
    world.settle()
    assert len(world.policy.leases.table.get(far).away) == 18
    assert "tier.evict" not in world.kinds()
    world.check()


def test_no_more_is_decided_ahead_of_need_than_can_begin() -> None:
    world = World(size=100, slots=100, tier_reserve=0.9)
    world.tier.mover.queue.window = 12
    for n in range(9):
        world.until(f"c{n}", 10)
    world.tier.tick(0.0)
    assert sum(len(each.blocks) for each in world.waiting()) == 20
    world.tier.tick(0.0)
    assert len(world.waiting()) == 2, "there is enough to begin"
    for _ in range(9):
        world.settle()
        world.tier.tick(0.0)
    assert world.tier.stats()["tier_used"] == 80, "90 of 100 are free or have copies"
    world.check()


def test_who_waits_for_room_is_not_overtaken_by_who_needs_less() -> None:
    world = World(size=40, slots=80, tier_reserve=0.0)
    large, small = world.until("large", 30)[0].token, world.until("small", 10)[0].token
    for token in (large, small):
        world.tier.demote(token, 0.0)
        world.settle()
    running = world.pool.take(40)
    world.pool.finish(running[15:])
    for chain, n, token in (("large", 30, large), ("small", 10, small)):
        digests = world.digests(chain, n)
        assert world.tier.wanted(chain, digests, len(world.hits(digests)), 0.0, owner="", lease=token)
    assert (world.tier.claimed, world.waiting()) == (40, []), "room for the smaller one was free"


def test_a_chain_that_is_in_use_leaves_when_that_has_ended() -> None:
    world = World(tier_reserve=0.0)
    token = world.until("a", 25)[0].token
    used = world.hits(world.digests("a", 25))
    world.pool.touch(used)
    world.tier.arrived("a request", token)
    assert world.tier.demote(token, 0.0) is None
    world.settle()
    world.tier.tick(0.0)
    assert world.policy.leases.table.get(token).away == ()
    world.tier.forget("a request")
    world.tier.tick(0.0)
    assert world.policy.leases.table.get(token).away == (), "its blocks are not free yet"
    world.pool.finish(used)
    world.tier.tick(0.0)
    assert len(world.policy.leases.table.get(token).away) == 25
    world.check()


def test_a_request_wakes_the_chain_that_was_sent_away() -> None:
    world = World(tier_reserve=0.0)
    token = world.sent_away("a", 25)
    world.until("b", 39, ttl=0.0)
    world.tier.arrived("a request", token)
    assert world.tier.wanted("a request", world.digests("a", 25), 0, 0.0, owner="", lease=token)
    world.settle()
    world.tier.tick(0.0)
    assert len(world.policy.leases.table.get(token).blocks) == 25, "it holds what has come back until that is used"
    world.check()


def test_a_load_does_not_write_over_the_start_of_its_own_chain() -> None:
    world = World(tier_reserve=0.0)
    token = world.sent_away("a", 25)
    world.until("b", 20, ttl=0.0)
    hits = len(world.hits(world.digests("a", 25)))
    assert 0 < hits < 25, "what is left of it in the pool belongs to nobody"
    assert world.until("a", 25, lease=token)[1] == 0
    assert world.tier.stats()["tier_totals"]["fetched"] == 25 - hits
    world.check()


def test_a_short_chain_is_recomputed_rather_than_moved() -> None:
    world = World(least=1.0)
    world.tier.cost.prefill_rate, world.tier.cost.bandwidth = 1000.0, 1e9
    assert world.tier.cost.least_tokens() > 25 * 16
    world.until("a", 25)
    world.until("b", 25)
    assert [e for e in world.kinds() if e == "transfer"] == []
    assert "lease.evict" in world.kinds()


def test_copies_ahead_of_need_do_not_take_each_others_place() -> None:
    world = World(size=24, slots=9, tier_reserve=0.7)
    for chain in "abc":
        world.until(chain, 6)
    world.come_to_rest()
    assert world.policy.records.blocks["transfer"] == 9, "host memory is filled once"


@pytest.mark.parametrize("expected", [None, 0.0], ids=["unknown", "overdue"])
def test_chains_that_two_clients_renew_in_turn_do_not_take_each_others_place(expected: float | None) -> None:
    world = World(size=24, slots=6, tier_reserve=0.9)
    tokens = [world.until(chain, 6)[0].token for chain in "ab"]
    for beat in range(12):
        world.now += 2.5
        world.policy.leases.renew(tokens[beat % 2], ttl=1e3, now=world.now, expected_reuse=expected)
        world.come_to_rest()
    # Once each at most: which of them is expected sooner becomes known with the first renewals.
    assert world.policy.records.blocks["transfer"] <= 12


def test_a_chain_that_is_sent_away_takes_the_place_of_copies_ahead_of_need() -> None:
    world = World(size=24, slots=9, tier_reserve=0.7)
    for reuse, chain in enumerate("abc"):
        world.until(chain, 6, expected_reuse=float(reuse))
    world.come_to_rest()
    last = [lease.token for lease in world.policy.leases.table.in_order()][-1]
    assert world.tier.demote(last, 0.0) is None
    world.settle()
    lease = world.policy.leases.table.get(last)
    assert lease is not None
    assert len(lease.away) == 6


def test_what_was_made_free_for_one_who_waits_is_not_taken_by_loads_ahead_of_need() -> None:
    world = World(size=40, slots=20, tier_reserve=0.0)
    for chain in "ab":
        world.until(chain, 18, expected_reuse=90.0)
    world.until("new", 39, expected_reuse=1.0)


def test_a_full_host_memory_keeps_what_is_wanted_sooner() -> None:
    world = World(size=40, slots=20, tier_reserve=0.0)
    far = world.until("far", 18, expected_reuse=90.0)[0]
    near = world.until("near", 18, expected_reuse=5.0)[0]
    world.until("new", 39, expected_reuse=1.0)
    table = world.policy.leases.table
    assert table.get(near.token) is not None
    assert len(table.get(near.token).away) >= 15
    gone = table.get(far.token)
    assert gone is None or len(gone.away) <= 5
    assert world.tier.mover.copies.free >= 0
    world.check()


def test_the_end_of_a_run_drops_its_copies_and_a_reset_drops_all() -> None:
    world = World()
    token = world.until("a", 25)[0].token
    world.until("b", 25)
    assert len(world.tier.mover.copies) > 0
    world.policy.leases.release(token, 0.0)
    assert world.tier.mover.copies.of(token) == ()
    world.reset()
    assert len(world.tier.mover.copies) == 0
    assert world.tier.mover.copies.free == SLOTS
    world.check()


def test_a_chain_that_resumes_in_the_middle_of_its_own_demotion_waits_for_nothing() -> None:
    world = World()
    token = world.until("a", 25)[0].token
    assert world.policy.tier is not None
    assert world.policy.tier.demote(token, 0.0) is None
    world.start()
    assert world.going
    answer = world.ask("a", 26, lease=token)
    assert answer is not None
    assert answer[1] == 1
    world.settle()
    world.check()


def test_a_failed_load_is_recomputed_and_counted() -> None:
    world = World()
    token = world.until("a", 25)[0].token
    world.until("b", 25)
    away = len(world.policy.leases.table.get(token).away)
    while not world.waiting_or_going("promote"):
        assert world.ask("a", 26, lease=token) is None
        world.start()
        while world.waiting_or_going("demote"):
            world.land()
            world.start()
    world.start()
    world.land(0, frozenset([0]))
    _, computed = world.until("a", 26, lease=token)
    assert 0 < computed <= away + 1
    assert world.tier.stats()["tier_failed"] == 1
    world.check()


def test_another_owner_gets_nothing() -> None:
    world = World()
    token = world.until("a", 25)[0].token
    world.until("b", 25)
    digests = world.digests("a", 25)
    hits = len(world.hits(digests))
    assert not world.tier.wanted("q", digests, hits, 0.0, owner="somebody")
    assert world.tier.wanted("q", digests, hits, 0.0, owner="", lease=token)


def test_a_wait_counts_the_blocks_that_were_on_their_way_already() -> None:
    world = World()
    token = world.sent_away("a", 20)
    assert world.tier.promote(token, 0.0) is None
    digests = world.digests("a", 20)
    assert world.tier.wanted("r", digests, 0, 0.0, owner="", lease=token)
    world.settle()
    assert not world.tier.wanted("r", digests, 20, 0.0, owner="", lease=token)
    [wait] = [record for record in world.policy.records.events()[0] if record.kind == "tier.wait"]
    assert wait.blocks == 20


class Machine(RuleBasedStateMachine):
    """Chains that grow, wait, come back, fail to, end; copies that take their time; resets."""

    @initialize(slots=st.sampled_from([12, SLOTS]), reserve=st.sampled_from([0.0, 0.3, 0.7]))
    def begin(self, slots: int, reserve: float) -> None:
        self.world = World(slots=slots, tier_reserve=reserve)
        self.tokens: dict[str, str] = {}
        self.lengths: dict[str, int] = {}
        self.epochs = count()

    @rule(chain=st.sampled_from("abcd"), more=st.integers(0, 6), reuse=st.none() | st.floats(0, 50))
    def ask(self, chain: str, more: int, reuse: float | None) -> None:
        n = min(35, self.lengths.get(chain, 5) + more)
        cls = "anchor" if chain == "d" else "chain"
        answer = self.world.ask(chain, n, lease=self.tokens.get(chain), expected_reuse=reuse, lease_class=cls)
        if answer is not None and answer[0].token is not None:
            self.tokens[chain], self.lengths[chain] = answer[0].token, n

    @rule()
    def start(self) -> None:
        self.world.start()

    @rule()
    def tick(self) -> None:
        self.world.tier.tick(self.world.now)

    @precondition(lambda self: self.world.going)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        # One direction's transfers end in their order.
        kind = data.draw(st.sampled_from(sorted({each.kind for each in self.world.going})))
        which = next(i for i, each in enumerate(self.world.going) if each.kind == kind)
        places = range(len(self.world.going[which].blocks))
        failing = data.draw(
            st.sets(st.sampled_from(places), max_size=2) if data.draw(st.booleans()) else st.just(set())
        )
        self.world.land(which, frozenset(failing))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), what=st.sampled_from(["demote", "promote", "release"]))
    def operate(self, data: st.DataObject, what: str) -> None:
        chain = data.draw(st.sampled_from(sorted(self.tokens)))
        if what == "release":
            self.world.policy.leases.release(self.tokens.pop(chain), self.world.now)
            self.lengths.pop(chain, None)
        else:
            getattr(self.world.tier, what)(self.tokens[chain], self.world.now)

    @rule()
    def come_to_rest(self) -> None:
        self.world.come_to_rest()

    @rule()
    def reset(self) -> None:
        self.world.reset()
        self.tokens.clear()
        self.lengths.clear()

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.settle()
        for lease in self.world.policy.leases.table:
            self.world.policy.leases.release(lease.token, self.world.now)
        self.world.settle()
        self.world.check()
        assert self.world.pool.free == SIZE
        assert self.world.tier.mover.copies.free == self.world.tier.mover.copies.slots


def test_the_laws_hold_after_any_sequence_of_operations() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
