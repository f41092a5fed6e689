"""Laws that hold after any sequence of operations, checked by a state machine over the whole policy."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agentkv.kv import Directive, in_order

SIZE = 40
CLASSES = st.sampled_from(["anchor", "chain", "branch", "speculative"])


class Machine(RuleBasedStateMachine):
    bench_class: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.bench = self.bench_class(SIZE, kv_pool_ratio=0.7, branch_prefetch_limit=2)
        self.policy = self.bench.policy
        self.pool = self.bench.pool
        self.now = 0.0
        self.chains: dict[str, list[int]] = {}
        self.running: list[list[int]] = []
        self.released: set[str] = set()
        self.prefetches: list[str] = []
        self.tickets: list[str] = []

    def tokens(self) -> list[str]:
        return [lease.token for lease in self.policy.leases.table]

    def need(self, n: int, *, prefetch: bool, protect: frozenset[int] = frozenset()) -> bool:
        """Ask for room as an engine does; whether there is enough now."""
        if (deficit := n - self.pool.free) <= 0:
            return True
        before = {lease.token: lease for lease in self.policy.leases.table}
        free = self.pool.free
        got = self.policy.leases.make_room(deficit, self.now, for_whom="q", protect=protect, only_speculative=prefetch)
        assert got in (0, deficit), "all that is needed and no more, or nothing"
        assert self.pool.free == free + got, "what was counted as freed is free"
        cut = [t for t, old in before.items() if (new := self.policy.leases.table.get(t)) is None or new != old]
        if prefetch:
            assert all(before[token].lease_class == "speculative" for token in cut)
        order = [lease.token for lease in in_order(before.values())]
        for token in cut:
            for earlier in order[: order.index(token)]:
                assert self.gives_nothing(earlier, protect), "whoever goes earlier has nothing left to give"
        return got > 0

    def gives_nothing(self, token: str, protect: frozenset[int]) -> bool:
        lease = self.policy.leases.table.get(token)
        table = self.policy.leases.table
        kept = (b for b in lease.blocks if b not in protect) if lease else ()
        return all(table.count(b) > 1 or self.pool.ref_count(b) > 1 for b in kept)

    @rule(n=st.integers(0, 12), cls=CLASSES, reuse=st.none() | st.floats(0, 20), ttl=st.floats(0, 20), data=st.data())
    def generate(self, n: int, cls: str, reuse: float | None, ttl: float, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([*self.tokens(), None, "forged"]))
        lease = self.policy.leases.table.get(token) if token else None
        hits = list(lease.blocks[: data.draw(st.integers(0, len(lease.blocks)))]) if lease else []
        prefetch = data.draw(st.booleans())
        if not self.need(n, prefetch=prefetch, protect=frozenset(hits)):
            return
        protected = {t.token: t for t in self.policy.leases.table if t.lease_class != "speculative"}
        directive: dict[str, Any] = {"lease_class": cls, "expected_reuse": reuse, "ttl": ttl, "lease": token}
        if self.tickets and data.draw(st.booleans()):
            directive["ticket"] = data.draw(st.sampled_from(self.tickets))
        self.bench.run(n + len(hits), self.now, hits, kind="prefill" if prefetch else "generate", **directive)
        if prefetch:
            changed = [t for t, old in protected.items() if t != token and self.policy.leases.table.get(t) != old]
            assert not changed, "a prefetch displaces speculative leases only"

    @rule(n=st.integers(1, 10))
    def start_request(self, n: int) -> None:
        if self.need(n, prefetch=False):
            self.running.append(self.pool.take(n))

    @precondition(lambda self: self.running)
    @rule()
    def end_request(self) -> None:
        self.pool.finish(self.running.pop())

    @precondition(lambda self: self.tokens())
    @rule(data=st.data(), ttl=st.floats(0, 20), cls=st.none() | CLASSES)
    def renew(self, data: st.DataObject, ttl: float, cls: Any) -> None:
        token = data.draw(st.sampled_from(self.tokens()))
        assert self.policy.leases.renew(token, ttl=ttl, now=self.now, lease_class=cls) is None

    @precondition(lambda self: self.tokens())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.tokens()))
        self.policy.leases.release(token, self.now)
        self.released.add(token)
        assert self.policy.leases.renew(token, ttl=9.0, now=self.now) == "lease: no such token"

    @rule(seconds=st.floats(0, 15))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.policy.settle(self.now)
        assert all(lease.expires > self.now for lease in self.policy.leases.table)

    @rule(blocks=st.integers(0, 50), held=st.none() | st.integers(0, 60), ttl=st.floats(1, 30))
    def admit(self, blocks: int, held: int | None, ttl: float) -> None:
        ticket = self.policy.admit(run="r", blocks=blocks, ttl=ttl, now=self.now, held=held)
        self.tickets.append(ticket.token)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.policy.leave(data.draw(st.sampled_from(self.tickets)), self.now)

    @rule(run=st.sampled_from("ab"))
    def prefetch(self, run: str) -> None:
        name = f"{run}{len(self.prefetches)}"
        if self.policy.start(Directive(run=run, kind="prefill"), name, self.now) is None:
            self.prefetches.append(name)
        assert self.policy.prefetches.of_run(run) <= 2

    @precondition(lambda self: self.prefetches)
    @rule()
    def end_prefetch(self) -> None:
        name = self.prefetches.pop()
        self.policy.abort(Directive(run=name[0], kind="prefill"), name, self.now)

    @rule()
    def reset(self) -> None:
        self.policy.reset(self.now)
        assert self.policy.leases.table.held == 0

    @invariant()
    def references_are_exact(self) -> None:
        leased = {block for lease in self.policy.leases.table for block in lease.blocks}
        used = [block for blocks in self.running for block in blocks]
        assert self.policy.leases.table.held == len(leased)
        for block in range(SIZE):
            assert self.pool.ref_count(block) == used.count(block) + (block in leased)
        assert self.pool.free == SIZE - len(leased | set(used))

    @invariant()
    def the_budget_holds(self) -> None:
        assert self.policy.leases.table.held <= self.policy.leases.table.budget == 28

    @invariant()
    def a_released_lease_is_gone(self) -> None:
        assert not self.released & set(self.tokens())

    @invariant()
    def classes_are_counted(self) -> None:
        counted = sum(self.policy.stats()["leases_by_class"].values())
        assert counted == len(self.policy.leases.table)

    @invariant()
    def what_is_kept_in_order_is_in_order(self) -> None:
        self.policy.admission.check_integrity()
        assert list(self.policy.leases.table.in_order()) == in_order(self.policy.leases.table)

    def teardown(self) -> None:
        for blocks in self.running:
            self.pool.finish(blocks)
        self.policy.settle(self.now + 1e5)
        assert (self.pool.free, len(self.policy.leases.table), len(self.policy.admission)) == (SIZE, 0, 0)


def test_the_laws_hold_after_any_sequence_of_operations(bench_class: Any) -> None:
    Machine.bench_class = bench_class
    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=40))
