"""The second tier's parts: the queue of transfers, what is worth moving, copies, the share of time at work."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import Admission, Ticket
from agentkv.kv.allowance import Allowance
from agentkv.kv.copies import HostCopies
from agentkv.kv.duty import Duty
from agentkv.kv.transfer import Transfer, TransferQueue
from agentkv.kv.worth import MoveCost


def transfer(number: int, kind: str = "promote", rank: str = "ahead", blocks: int = 4, order: int = 0) -> Transfer:
    places = tuple(range(blocks))
    digests = tuple(b"%d/%d" % (number, place) for place in places)
    return Transfer(
        number=number, kind=kind, rank=rank, blocks=places, slots=places, digests=digests, token="t", order=order
    )


def test_a_resume_overtakes_all_that_has_not_begun() -> None:
    queue = TransferQueue(window=8)
    for number in range(5):
        queue.push(transfer(number))
    assert [each.number for each in queue.start()] == [0, 1]
    queue.push(transfer(10, rank="room"))
    queue.push(transfer(11, rank="resume", order=2))
    queue.push(transfer(12, rank="resume", order=1))
    assert [each.number for each in queue.start()] == [12, 11], "at once, whatever is under way, by their own order"
    for number in (0, 1, 11, 12):
        queue.end(number)
    assert [each.number for each in queue.start()] == [10, 2]


def test_directions_do_not_wait_for_each_other() -> None:
    queue = TransferQueue(window=4)
    queue.push(transfer(1, "demote"))
    queue.push(transfer(2, "demote"))
    queue.push(transfer(3, "promote"))
    assert [each.number for each in queue.start()] == [1, 3]
    assert (queue.under_way("demote"), queue.waiting("demote"), queue.under_way("promote")) == (4, 4, 4)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["demote", "promote"]), st.sampled_from(["resume", "room", "ahead"]), st.integers(1, 9)
        )
    )
)
def test_every_transfer_begins_once_and_the_window_holds(asked: list[tuple[str, str, int]]) -> None:
    queue, begun = TransferQueue(window=10), []
    for number, (kind, rank, blocks) in enumerate(asked):
        queue.push(transfer(number, kind, rank, blocks))
    while len(queue):
        started = queue.start()
        assert started or queue.going()
        begun += started
        for kind in ("demote", "promote"):
            eager = sum(len(each.blocks) for each in queue.going() if each.kind == kind and each.rank != "resume")
            assert eager < 10 + 9
        queue.end(queue.going()[0].number)
    assert sorted(each.number for each in begun) == list(range(len(asked)))
    assert queue.end(0) is None


def test_a_chain_is_worth_fetching_from_where_its_bytes_come_sooner_than_its_tokens() -> None:
    cost = MoveCost(131_072, bandwidth=55e9, prefill_rate=30_000, latency=0.03)
    least = cost.least_tokens()
    for tokens, worth in ((least + 1, True), (least - 2, False)):
        assert (0.03 + tokens * 131_072 / 55e9 < tokens / 30_000) is worth
    cost.prefill_rate = 1e9
    assert cost.least_tokens() > 1 << 40, "what is computed faster than it is moved is never moved"


def test_what_looked_too_slow_is_tried_again() -> None:
    # An H200 computes 8B models' prompts at 41,000 tokens a second: no guess may keep such chains from being copied.
    cost = MoveCost(131_072)
    for _ in range(200):
        cost.computed(6000, 0.147)
    assert cost.least_tokens() < 2000
    for _ in range(50):
        cost.fetched(1_000_000, 1.0)
    assert cost.least_tokens() > 1 << 40
    for _ in range(300):
        cost.computed(6000, 0.147)
    assert cost.least_tokens() < 2000


def test_speeds_follow_what_is_measured() -> None:
    cost = MoveCost(1000)
    for _ in range(100):
        cost.fetched(10_000_000, 0.01)
        cost.computed(300, 0.01)
    assert cost.bandwidth == pytest.approx(1e9, rel=0.01)
    assert cost.prefill_rate == pytest.approx(30_000, rel=0.01)
    cost.fetched(0, 0.0)
    cost.computed(5, 0.0)
    assert cost.bandwidth == pytest.approx(1e9, rel=0.01)


def test_a_copy_lives_as_long_as_somebody_holds_it_or_a_transfer_reads_it() -> None:
    copies = HostCopies(4)
    (slot,) = copies.reserve("a", [b"x"])
    copies.written(b"x", slot, good=True)
    copies.follow("b", [b"x", b"y"])
    copies.follow("a", [])
    assert copies.holders(b"x") == {"b"}
    assert copies.pin([b"x"]) == [slot]
    copies.follow("b", [])
    assert not copies.has(b"x")
    assert copies.free == 3, "it is still read"
    copies.unpin(b"x", slot)
    assert copies.free == 4
    copies.check_integrity()


def test_a_slot_that_is_forgotten_while_it_is_written_comes_back_when_that_ends() -> None:
    copies = HostCopies(2)
    slots = copies.reserve("a", [b"x", b"y"])
    copies.clear()
    assert copies.free == 0
    for digest, slot in zip((b"x", b"y"), slots, strict=True):
        copies.written(digest, slot, good=True)
        assert not copies.ready(digest)
    assert copies.free == 2
    copies.check_integrity()


def test_the_share_of_time_at_work_is_seen_and_not_assumed(seen: Callable[..., Duty]) -> None:
    assert Duty().share == 1.0
    duty = seen(work=1.0, wait=3.0)
    assert (duty.share, duty.wait) == (pytest.approx(0.25), pytest.approx(3.0))
    duty.forget("r")
    duty.began("late", 1000.0)
    duty.let_in("late", 1100.0)
    duty.ended("late", 1101.0, admitted=True)
    assert duty.share == pytest.approx(0.25), "what it waited to be admitted is no work"


@pytest.mark.parametrize("at", [0, 5, 15])
def test_a_run_that_waits_a_day_says_nothing_about_the_others(at: int) -> None:
    duty, now = Duty(), 0.0
    for number in range(20):
        duty.began("r", now)
        duty.ended("r", now + 1.0, admitted=True)
        now += 1.0 + (86_400.0 if number == at else 3.0)
    assert duty.wait == pytest.approx(3.0, rel=0.5)
    assert duty.share == pytest.approx(0.25, rel=0.3)


def test_waits_that_begin_with_nothing_are_followed() -> None:
    duty, now = Duty(), 0.0
    for number in range(400):
        duty.began("r", now)
        duty.ended("r", now + 1.0, admitted=True)
        now += 1.0 + (0.0 if number < 20 else 4.0)
    assert duty.wait == pytest.approx(4.0, rel=0.05)


def run(token: str, blocks: int) -> Ticket:
    return Ticket(token=token, serial=0, run=token, owner="", blocks=blocks, expires=1e9)


@pytest.mark.parametrize(
    ("duty", "far", "started"), [(1.0, 0, 10), (1.0, 1000, 10), (0.4, 0, 10), (0.4, 1000, 15), (0.4, 30, 13)]
)
def test_with_a_second_tier_more_runs_start_as_far_as_they_wait_and_both_tiers_hold_them(
    duty: float, far: int, started: int, seen: Callable[..., Duty]
) -> None:
    line = Admission(Allowance(100, far=far, duty=seen(work=10 * duty, wait=10 * (1 - duty))))
    for number in range(40):
        line.declare(run(f"r{number}", 10))
    assert len(line.admit(0.0)) == started
