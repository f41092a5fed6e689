"""What goes into a step, without time: order, budget, room, preemption."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.engines.sim_cache import BlockPool
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step

BLOCK = 4


def make_scheduler(blocks: int = 32, budget: int = 64, seqs: int = 16) -> Scheduler:
    return Scheduler(BlockPool(blocks), block_size=BLOCK, max_num_batched_tokens=budget, max_num_seqs=seqs)


def make_request(name: str, prompt: list[int], output: int = 1, *, reuse: bool = True) -> SimRequest:
    return SimRequest(name, prompt, [900 + i for i in range(output)], "stop", block_size=BLOCK, reuse=reuse)


def rows(step: Step) -> list[tuple[str, int]]:
    return [(request.request_id, tokens) for request, tokens in step.rows]


def steps(scheduler: Scheduler) -> Iterator[Step]:
    while scheduler.running or scheduler.waiting:
        step = scheduler.schedule()
        assert step.rows, "a step without work would never end"
        scheduler.check_integrity()
        scheduler.complete(step)
        yield step
    scheduler.check_integrity()


def distinct(start: int, count: int) -> list[int]:
    return list(range(start * 1000, start * 1000 + count))


def test_waiting_requests_start_in_order_within_the_budget() -> None:
    scheduler = make_scheduler(budget=10)
    for number in (1, 2, 3):
        scheduler.add(make_request(str(number), distinct(number, 6)))
    assert rows(scheduler.schedule()) == [("1", 6), ("2", 4)]


def test_running_requests_come_first_and_prompts_are_cut_into_chunks() -> None:
    scheduler = make_scheduler(budget=10)
    scheduler.add(make_request("long", distinct(1, 25), output=2))
    seen = [rows(scheduler.schedule())]
    scheduler.add(make_request("late", distinct(2, 3)))
    seen += [rows(scheduler.schedule()), rows(scheduler.schedule())]
    assert seen == [[("long", 10)], [("long", 10)], [("long", 5), ("late", 3)]]


def test_the_number_of_running_requests_is_bounded() -> None:
    scheduler = make_scheduler(seqs=2)
    for number in (1, 2, 3):
        scheduler.add(make_request(str(number), distinct(number, 2), output=2))
    assert [rows(step) for step in steps(scheduler)] == [
        [("1", 2), ("2", 2)],
        [("1", 1), ("2", 1)],
        [("3", 2)],
        [("3", 1)],
    ]


def test_a_step_counts_prompt_tokens_and_single_tokens_apart() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("decodes", distinct(1, 5), output=3))
    scheduler.complete(scheduler.schedule())
    scheduler.add(make_request("starts", distinct(2, 7)))
    step = scheduler.schedule()
    assert (step.prefill_tokens, step.decode_seqs, step.context_tokens) == (7, 1, 6)
    assert scheduler.computed_tokens == 12


def test_blocks_can_be_hit_as_soon_as_they_are_scheduled() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("first", distinct(1, 10)))
    scheduler.add(make_request("same", distinct(1, 10)))
    assert rows(scheduler.schedule()) == [("first", 10), ("same", 2)]
    assert scheduler.cached_tokens == 8


def test_without_reuse_nothing_is_hit_but_the_blocks_are_entered() -> None:
    scheduler = make_scheduler()
    for name, reuse in (("first", True), ("apart", False), ("after", True)):
        scheduler.add(make_request(name, distinct(1, 10), reuse=reuse))
    assert rows(scheduler.schedule()) == [("first", 10), ("apart", 10), ("after", 2)]
    scheduler.check_integrity()


def test_a_prompt_starts_only_when_all_of_it_finds_room() -> None:
    scheduler = make_scheduler(blocks=10, budget=8)
    scheduler.add(make_request("first", distinct(1, 24)))
    scheduler.add(make_request("second", distinct(2, 24)))
    assert [rows(step) for step in steps(scheduler)] == [[("first", 8)]] * 3 + [[("second", 8)]] * 3


def test_a_hit_that_nobody_uses_costs_a_free_block() -> None:
    scheduler = make_scheduler(blocks=6)
    scheduler.add(make_request("old", distinct(1, 16)))
    list(steps(scheduler))
    scheduler.add(make_request("holder", distinct(2, 7), output=9))
    scheduler.add(make_request("again", distinct(1, 20)))
    # "again" hits 4 blocks and needs one more: 5 of the 4 that are free.
    assert rows(scheduler.schedule()) == [("holder", 7)]


def test_the_tail_of_a_chain_is_evicted_first() -> None:
    scheduler = make_scheduler(blocks=8)
    scheduler.add(make_request("old", distinct(1, 24)))
    list(steps(scheduler))
    scheduler.add(make_request("other", distinct(2, 16)))
    list(steps(scheduler))
    # Of 8 blocks 6 were cached and 2 never used: 4 were taken, so the last 2 of the chain went.
    assert scheduler.pool.evictions == 2
    scheduler.add(make_request("again", distinct(1, 24)))
    scheduler.schedule()
    assert scheduler.cached_tokens == 16


def test_the_least_recently_used_chain_is_evicted_first() -> None:
    scheduler = make_scheduler(blocks=8)
    for name in (1, 2, 1):
        scheduler.add(make_request(str(name), [*distinct(name, 16), 0]))
        list(steps(scheduler))
    scheduler.add(make_request("3", distinct(3, 16)))
    list(steps(scheduler))
    before = scheduler.cached_tokens
    scheduler.add(make_request("1", [*distinct(1, 16), 0]))
    scheduler.schedule()
    assert scheduler.cached_tokens - before == 16


def test_growth_preempts_the_youngest_which_comes_back_first_and_hits_its_own_blocks() -> None:
    scheduler = make_scheduler(blocks=6, seqs=2)
    scheduler.add(make_request("old", distinct(1, 8), output=8))
    scheduler.add(make_request("young", distinct(2, 8), output=8))
    scheduler.add(make_request("next", distinct(3, 4)))
    seen = [rows(step) for step in steps(scheduler)]
    assert scheduler.preemptions > 0
    resumed = [row for step in seen for row in step if row[0] == "young" and row[1] > 1]
    assert len(resumed) == 2, "the prompt once, and once what was lost"
    assert resumed[1][1] < 8, "full blocks that were not taken are hit"
    assert seen.index([("young", resumed[1][1]), ("next", 4)]) > 0, "first in the queue again"
    assert max(i for i, step in enumerate(seen) if ("old", 1) in step) < max(
        i for i, step in enumerate(seen) if ("young", 1) in step
    )


def test_what_a_preempted_request_hits_again_is_not_reported_as_cached() -> None:
    scheduler = make_scheduler(blocks=6)
    old, young = make_request("old", distinct(1, 8), output=8), make_request("young", distinct(2, 8), output=8)
    scheduler.add(old)
    scheduler.add(young)
    list(steps(scheduler))
    assert scheduler.preemptions > 0
    assert (old.cached, young.cached) == (0, 0)
    assert scheduler.cached_tokens == 0
    assert scheduler.computed_tokens > 16


def test_aborting_frees_at_once_and_leaves_the_blocks_cached() -> None:
    scheduler = make_scheduler(budget=8)
    scheduler.add(make_request("gone", distinct(1, 20)))
    step = scheduler.schedule()
    assert scheduler.abort("gone")
    assert scheduler.pool.free == 32
    assert scheduler.complete(step) == []
    assert not scheduler.abort("gone")
    scheduler.add(make_request("after", distinct(1, 20)))
    scheduler.schedule()
    assert scheduler.cached_tokens == 8
    scheduler.check_integrity()


def test_an_id_can_be_used_again_while_the_step_of_its_aborted_request_runs() -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("same", distinct(1, 5)))
    step = scheduler.schedule()
    scheduler.abort("same")
    scheduler.add(make_request("same", distinct(2, 5)))
    assert scheduler.complete(step) == []
    assert [rows(step) for step in steps(scheduler)] == [[("same", 5)]]


requests = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(1, 12), st.booleans(), st.none() | st.integers(0, 12)),
    min_size=1,
    max_size=12,
)


@given(requests=requests, blocks=st.integers(13, 24), budget=st.integers(1, 32), seqs=st.integers(1, 8))
def test_all_ends_and_nothing_leaks_whatever_is_aborted(
    requests: list[tuple[int, int, int, bool, int | None]], blocks: int, budget: int, seqs: int
) -> None:
    scheduler = make_scheduler(blocks=blocks, budget=budget, seqs=seqs)
    left: dict[str, int] = {}
    aborts: list[tuple[int, str]] = []
    for number, (family, prompt, output, reuse, abort_at) in enumerate(requests):
        scheduler.add(make_request(str(number), distinct(family, prompt), output, reuse=reuse))
        left[str(number)] = output
        if abort_at is not None:
            aborts.append((abort_at, str(number)))
    for number in range(10_000):
        for _, name in [abort for abort in aborts if abort[0] == number]:
            if scheduler.abort(name):
                del left[name]
            scheduler.check_integrity()
        step = scheduler.schedule()
        if not step.rows:
            break
        assert sum(tokens for _, tokens in step.rows) <= budget
        assert len(scheduler.running) <= seqs
        scheduler.check_integrity()
        for request in scheduler.complete(step):
            left[request.request_id] -= 1
    assert not scheduler.running
    assert not scheduler.waiting
    assert set(left.values()) <= {0}
    assert scheduler.pool.free == blocks


def test_equal_inputs_give_equal_steps() -> None:
    def timeline() -> list[list[tuple[str, int]]]:
        scheduler = make_scheduler(blocks=16, budget=20)
        for number in range(12):
            scheduler.add(make_request(str(number), distinct(number % 3, 5 + number), output=6))
        return [rows(step) for step in steps(scheduler)]

    assert timeline() == timeline()


@pytest.mark.parametrize("waiting", [True, False])
def test_an_id_in_use_is_refused(waiting: bool) -> None:
    scheduler = make_scheduler()
    scheduler.add(make_request("same", distinct(1, 5), output=3))
    if not waiting:
        scheduler.schedule()
    with pytest.raises(Exception, match="request id 'same' is in use"):
        scheduler.add(make_request("same", distinct(1, 5)))
