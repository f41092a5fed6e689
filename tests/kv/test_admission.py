from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import Admission, Ticket
from agentkv.kv.allowance import Allowance
from agentkv.kv.planned import Planned

Make = Callable[..., Any]


def declare(line: Admission, token: str, blocks: int, now: float = 0.0, **fields: Any) -> Ticket:
    ticket = Ticket(token=token, serial=0, run=token, owner="", blocks=blocks, arrived=now, expires=now + 1e6, **fields)
    placed = line.declare(ticket)
    assert isinstance(placed, Ticket)
    line.admit(now)
    return line.get(token) or placed


def states(line: Admission, *tokens: str) -> list[str]:
    return [ticket.state if (ticket := line.get(token)) else "gone" for token in tokens]


def test_runs_start_while_their_working_sets_fit() -> None:
    line = Admission(Allowance(10))
    for token in "abc":
        declare(line, token, 4)
    assert states(line, "a", "b", "c") == ["admitted", "admitted", "queued"]
    assert (line.position("c"), line.planned) == (1, 8)
    line.leave("a", 5.0)
    line.admit(5.0)
    assert states(line, "c") == ["admitted"]


def test_one_larger_than_the_pool_runs_alone() -> None:
    line = Admission(Allowance(10))
    declare(line, "small", 2)
    declare(line, "giant", 50)
    assert states(line, "giant") == ["queued"]
    line.leave("small", 1.0)
    line.admit(1.0)
    declare(line, "next", 1)
    assert states(line, "giant", "next") == ["admitted", "queued"]


def test_a_small_run_may_pass_a_large_one_a_bounded_number_of_times() -> None:
    line = Admission(Allowance(10), max_bypass=2)
    declare(line, "a", 8)
    declare(line, "large", 10)
    for token in ["s1", "s2", "s3"]:
        declare(line, token, 1)
        line.leave(token, 1.0) if token != "s3" else None
    assert states(line, "large", "s3") == ["queued", "queued"]
    line.leave("a", 2.0)
    line.admit(2.0)
    assert states(line, "large") == ["admitted"]


def test_a_child_of_an_admitted_run_never_waits_and_one_of_a_queued_run_starts_with_it() -> None:
    line = Admission(Allowance(10))
    declare(line, "a", 9)
    assert declare(line, "a/child", 5, parent="a").state == "admitted"
    declare(line, "b", 6)
    assert declare(line, "b/child", 1, parent="b").state == "queued"
    line.leave("a", 1.0)
    line.admit(1.0)
    assert states(line, "a/child", "b", "b/child") == ["gone", "admitted", "admitted"]


def test_a_child_of_a_paused_run_does_not_wait_for_what_waits_for_it() -> None:
    line = Admission(Allowance(10))
    declare(line, "a", 5)
    declare(line, "b", 5)
    line.pause("b")
    assert declare(line, "b/child", 5, parent="b").state == "admitted"


def test_the_oldest_run_is_never_paused_however_large_it_grows() -> None:
    line = Admission(Allowance(10))
    declare(line, "old", 5)
    declare(line, "young", 5)
    line.update("old", 50)
    assert [ticket.token for ticket in line.overload()] == ["young"]
    line.leave("young", 1.0)
    assert line.overload() == []


@pytest.mark.parametrize("end", ["leave", "expire"])
def test_runs_within_runs_start_and_end_together_however_deep(end: str) -> None:
    line = Admission(Allowance(10), max_queued=5000)
    declare(line, "a", 10)
    names = ["b", *(f"b{depth}" for depth in range(2000))]
    for parent, name in zip([None, *names], names, strict=False):
        declare(line, name, 0 if parent else 10, parent=parent)
    line.leave("a", 1.0)
    assert [ticket.token for ticket in line.admit(1.0)] == names, "parents before their children"
    gone = line.leave("b", 2.0) if end == "leave" else line.expire(1e9)
    assert [ticket.token for ticket in gone] == names
    assert (len(line), line.planned, dict(line._children)) == (0, 0, {})
    line.check_integrity()


def test_a_paused_run_goes_on_when_nothing_but_its_children_is_left() -> None:
    line = Admission(Allowance(100))
    declare(line, "old", 50)
    declare(line, "young", 40)
    declare(line, "child", 0, parent="young")
    line.update("young", 120)
    assert line.pause("young") is not None
    assert line.admit(0.5) == []
    line.leave("old", 1.0)
    assert [ticket.token for ticket in line.admit(1.0)] == ["young"]
    line.check_integrity()


def test_runs_that_are_large_at_different_times_share_the_pool() -> None:
    line = Admission(Allowance(100, 1.0))
    declare(line, "old", 60, held=10)
    line.grow("old", 58)
    assert declare(line, "young", 60, held=10).state == "admitted", "it holds 12 when the old one ends"
    assert declare(line, "third", 60, held=10).state == "queued", "this one would end together with it"
    assert line.planned == 120


def test_runs_of_one_age_plan_their_largest() -> None:
    line = Admission(Allowance(100, 1.0))
    for token in "abc":
        declare(line, token, 40, held=2)
    assert states(line, "a", "b", "c") == ["admitted", "admitted", "queued"]


def test_a_run_that_does_not_say_what_it_holds_may_hold_all_of_it() -> None:
    line = Admission(Allowance(100, 1.0))
    declare(line, "old", 60)
    line.grow("old", 58)
    assert declare(line, "young", 60, held=10).state == "queued"


def test_a_run_that_is_as_large_as_it_said_is_not_taken_to_end_at_once() -> None:
    line = Admission(Allowance(100, 1.0))
    declare(line, "old", 60, held=10)
    line.grow("old", 61)
    assert declare(line, "young", 60, held=10).state == "queued"


@pytest.mark.parametrize(("declared", "updated", "held"), [(60, 1, 40), (1, 1, 1 << 52)])
def test_a_run_that_holds_more_than_it_says_is_seen(declared: int, updated: int, held: int) -> None:
    line = Admission(Allowance(100, 1.0))
    declare(line, "old", declared, held=held)
    line.update("old", updated)
    line.grow("old", 42)
    assert line.planned == 42
    assert declare(line, "young", 60, held=10).state == "queued"
    line.check_integrity()


def test_the_fullest_moment_leaves_a_margin() -> None:
    for ratio, state in ((0.8, "admitted"), (0.6, "queued"), (0.0, "queued")):
        line = Admission(Allowance(100, ratio))
        declare(line, "old", 60, held=58)
        assert declare(line, "young", 60, held=10).state == state


def test_the_youngest_is_paused_by_what_is_held_and_not_by_what_is_planned() -> None:
    line = Admission(Allowance(100, 1.0))
    declare(line, "old", 90, held=85)
    declare(line, "young", 40, held=5)
    line.update("old", 99)
    assert (line.planned, line.overload()) == (139, [])
    line.grow("young", 14)
    assert line.overload() == [], "its next step may be as large: 85 and 23, of which chains' ends give the 8"
    line.grow("young", 20)
    assert [ticket.token for ticket in line.overload()] == ["young"], "85 and 29 are more than ends should give"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8))
def test_the_fullest_moment_is_that_of_runs_which_grow_side_by_side(runs: list[tuple[int, int]]) -> None:
    tickets = [
        Ticket(token=str(n), serial=0, run="", owner="", blocks=held + lacks, held=held)
        for n, (held, lacks) in enumerate(runs)
    ]
    planned = Planned()
    for ticket in tickets[1:]:
        planned.add(ticket)
    grown = [sum(held + min(x, lacks) for held, lacks in runs if lacks >= x or not lacks) for x in range(31)]
    assert planned.peak(tickets[0]) == max(grown)
    assert planned.peak(tickets[0]) <= planned.blocks + tickets[0].blocks


def test_a_shared_anchor_is_counted_once() -> None:
    line = Admission(Allowance(20))
    for token in "abcd":
        declare(line, token, 8, anchor="support", anchor_blocks=5)
    assert states(line, "a", "b", "c", "d") == ["admitted"] * 4
    assert line.planned == 17
    assert declare(line, "e", 8, anchor="other", anchor_blocks=5).state == "queued"


def test_the_line_is_bounded() -> None:
    line = Admission(Allowance(1), max_queued=2)
    for token in "abc":
        declare(line, token, 1)
    refused = line.declare(Ticket(token="d", serial=0, run="d", owner="", blocks=1, expires=9.0))
    assert refused == "the line is full"


def test_an_unknown_parent_is_refused() -> None:
    refused = Admission(Allowance(1)).declare(Ticket(token="d", serial=0, run="d", owner="", blocks=1, parent="x"))
    assert refused == "parent: no such ticket"


def test_position_and_estimate_are_visible() -> None:
    line = Admission(Allowance(10))
    declare(line, "a", 10)
    declare(line, "b", 10)
    declare(line, "c", 10)
    assert line.estimate("c") is None
    line.leave("a", 8.0)
    line.admit(8.0)
    assert (line.position("b"), line.position("c")) == (0, 1)
    assert (line.estimate("b"), line.estimate("c")) == (0.0, 8.0)


def test_without_admission_everything_starts() -> None:
    line = Admission(Allowance(1), mode="none")
    assert {declare(line, str(n), 10).state for n in range(5)} == {"admitted"}
    assert line.overload() == []


def test_the_youngest_run_is_paused_at_its_tool_boundary_and_comes_back(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=1.0)
    policy = bench.policy
    old, young = (policy.admit(run=run, blocks=8, ttl=99.0, now=0.0).token for run in ("old", "young"))
    bench.run(6, run="old", ticket=old, ttl=99.0)
    bench.run(6, run="young", ticket=young, ttl=99.0)
    from agentkv.kv import Directive

    generating = Directive(run="young", ticket=young)
    policy.start(generating, "q", 1.0)
    policy.update(old, 15, 1.0)
    assert policy.may_run(generating), "not in the middle of a generation"
    policy.abort(generating, "q", 2.0)
    assert not policy.may_run(generating)
    assert {lease.run: lease.lease_class for lease in policy.leases.table} == {"old": "chain", "young": "speculative"}
    policy.leave(old, 3.0)
    assert policy.may_run(generating)
    assert bench.kinds().count("admission.pause") == 1


def test_a_client_that_dies_frees_its_place_and_its_kv(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=1.0)
    dead = bench.policy.admit(run="dead", blocks=20, ttl=5.0, now=0.0).token
    waiting = bench.policy.admit(run="next", blocks=20, ttl=50.0, now=0.0)
    bench.run(6, run="dead", ticket=dead, ttl=99.0)
    assert waiting.state == "queued"
    bench.policy.settle(5.0)
    assert bench.policy.admission.get(waiting.token).state == "admitted"
    assert bench.pool.free == 20


def test_leaving_releases_the_runs_leases_but_not_its_anchor(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=1.0)
    ticket = bench.policy.admit(run="r", blocks=10, ttl=9.0, now=0.0).token
    bench.run(3, lease_class="anchor", ticket=ticket, ttl=99.0)
    bench.run(4, ticket=ticket, ttl=99.0)
    assert bench.policy.leave(ticket, 1.0) is None
    assert [lease.lease_class for lease in bench.policy.leases.table] == ["anchor"]
    assert bench.policy.leave(ticket, 1.0) == "ticket: no such ticket"


def test_estimates_adapt_to_what_a_run_is_seen_to_hold(make_bench: Make) -> None:
    bench = make_bench(20, kv_pool_ratio=1.0)
    ticket = bench.policy.admit(run="r", blocks=2, ttl=9.0, now=0.0).token
    bench.run(7, ticket=ticket)
    assert bench.policy.admission.get(ticket).blocks == 7


class Life:
    """Runs with children, driven until all have ended: a run ends when its work and its children's are done."""

    def __init__(self, random: Random, line: Admission) -> None:
        self.random = random
        self.line = line
        self.left: dict[str, int] = {}
        self.parents: dict[str, str | None] = {}

    def add(self, token: str, parent: str | None) -> None:
        self.left[token] = self.random.randint(1, 4)
        self.parents[token] = parent
        held = self.random.choice([None, self.random.randint(0, 30)])
        declare(self.line, token, self.random.randint(0, 30), parent=parent, held=held)

    def step(self, now: float) -> None:
        self.line.admit(now)
        for token in list(self.left):
            ticket = self.line.get(token)
            assert ticket is not None
            if ticket.state != "admitted":
                continue
            self.random.choice([self.line.update, self.line.grow])(token, self.random.randint(0, 30))
            waits = any(parent == token for child, parent in self.parents.items() if child in self.left)
            self.left[token] -= 1
            if self.left[token] <= 0 and not waits:
                del self.left[token]
                self.line.leave(token, now)
        for paused in self.line.overload():
            self.line.pause(paused.token)


@given(seed=st.integers(0, 10**9), capacity=st.integers(1, 25), runs=st.integers(1, 12))
def test_no_graph_of_runs_and_children_can_deadlock(seed: int, capacity: int, runs: int) -> None:
    random = Random(seed)
    life = Life(random, Admission(Allowance(capacity), max_bypass=random.randint(0, 3)))
    for n in range(runs):
        life.add(f"r{n}", None)
        for child in range(random.randint(0, 3)):
            life.add(f"r{n}/{child}", random.choice([f"r{n}", *[t for t in life.left if t.startswith(f"r{n}")]]))
    for now in range(60 * runs):
        if not life.left:
            break
        life.step(float(now))
    assert not life.left, "every run ended"
    assert (len(life.line), life.line.planned) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_two_clients_on_one_engine_cannot_overcommit_it(make_bench: Make, seed: int) -> None:
    random = Random(seed)
    policy = make_bench(100).policy
    for n in range(200):
        policy.admit(run=f"{n}", owner=random.choice("ab"), blocks=random.randint(1, 40), ttl=50.0, now=float(n))
        policy.settle(float(n))
        assert policy.admission.planned <= policy.admission.allowance.held == 100
