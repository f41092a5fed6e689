"""The shares of a step, and what they are derived from."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import PrefillCost, StepShares

STEP = 64


def begin(
    shares: StepShares, waiting: Sequence[str] = "", *, decoding: int = 0, step_tokens: int = STEP, now: float = 0.0
) -> StepShares:
    """Begin a step with these waiting, first first: resumes (r) and cold prompts (all others)."""
    shares.open(
        waiting=waiting,
        prefilling="",
        decoding=decoding,
        is_resume=lambda name: name == "r",
        step_tokens=step_tokens,
        now=now,
    )
    return shares


@pytest.mark.parametrize(("waiting", "given"), [("", [30, 20, 0]), ("c", [0, 0, 0])])
def test_prefetches_share_what_nobody_waits_for(waiting: str, given: list[int]) -> None:
    shares = begin(StepShares(50), waiting)
    assert [shares.prefetch(30) for _ in range(3)] == given


def test_a_cold_prompt_that_holds_nobody_up_gets_the_whole_step() -> None:
    shares = begin(StepShares(50), "cc")
    assert [shares.cold(500), shares.cold(500)] == [500, 500]


def cold_steps(shares: StepShares, waiting: str, steps: int, *, tokens: int = 500, **opened: Any) -> list[int]:
    return [begin(shares, waiting, **{"decoding": 3, **opened}).cold(tokens) for _ in range(steps)]


def test_beside_others_cold_prompts_get_a_part_of_every_second_step() -> None:
    assert cold_steps(StepShares(None), "c", 4) == [32, 0, 32, 0]
    shares = begin(StepShares(None), "cc", decoding=1)
    assert [shares.cold(20), shares.cold(20), shares.cold(20)] == [20, 12, 0]


def test_a_resume_is_prefilled_apart_from_cold_prompts_but_not_for_ever() -> None:
    assert cold_steps(StepShares(None), "rc", 9) == [0, 0, 0, 32, 0, 0, 0, 32, 0]


def test_who_stands_behind_a_cold_prompt_that_may_be_passed_no_more_does_not_wait_for_it_to_start() -> None:
    assert cold_steps(StepShares(None), "cr", 3) == [32, 32, 32]


def test_no_step_is_kept_free_of_a_crowd_of_cold_prompts() -> None:
    assert cold_steps(StepShares(None), "ccc", 3) == cold_steps(StepShares(None), "rccc", 3) == [32, 32, 32]


def test_what_is_left_of_a_prompt_may_be_too_little_to_be_held_back() -> None:
    assert cold_steps(StepShares(None), "rc", 3, tokens=8) == [8, 8, 8]


@given(st.lists(st.tuples(st.text("rc", max_size=5), st.integers(0, 40), st.integers(2, 500)), min_size=4, max_size=40))
def test_no_cold_prompt_stands_still(steps: list[tuple[str, int, int]]) -> None:
    shares = StepShares(None)
    given = []
    for waiting, decoding, tokens in steps:
        begin(shares, waiting, decoding=decoding)
        given.append(shares.cold(tokens))
        assert 0 <= given[-1] <= tokens
    assert all(sum(given[start : start + 4]) > 0 for start in range(len(given) - 3))


def one_after_the_other(shares: StepShares, every: float, prompts: int = 12) -> StepShares:
    """A cold prompt of 1,000 tokens, which take a second, at once in a step, ``every`` so many seconds."""
    shares.cost = learnt(0.02, 0.0002, 0.001)
    for number in range(prompts):
        begin(shares, [f"c{number}"], decoding=3, now=number * every)
        shares.planned(number, [(f"c{number}", 1000), *((f"d{each}", 1) for each in range(3))], number * every)
        shares.ended(number, number * every + 1.0206)
    return shares


@pytest.mark.parametrize(("every", "given"), [(4.0, 32), (1.2, 500)])
def test_cold_prompts_get_whole_steps_where_there_is_no_time_for_parts(every: float, given: int) -> None:
    shares = one_after_the_other(StepShares(None), every)
    assert begin(shares, "c", decoding=3, now=12 * every).cold(500) == given


def test_parts_are_back_when_cold_prompts_have_become_few() -> None:
    shares = one_after_the_other(StepShares(None), 1.2)
    assert begin(shares, "r", decoding=3, now=40.0).limits_cold


def learnt(own: float, sequence: float, token: float, steps: int = 40) -> PrefillCost:
    cost, now = PrefillCost(), 100.0
    for number in range(steps):
        decoding, tokens = number % 7, 16 + 40 * (number % 5)
        rows = [1] * decoding + [tokens]
        cost.planned(number, rows, now)
        now += own + decoding * sequence + tokens * token
        cost.ended(number, now)
    return cost


def test_the_part_is_what_steps_are_seen_to_cost() -> None:
    cost = learnt(0.018, 0.0002, 0.00003)
    assert cost.per_step(5) == pytest.approx((0.018 + 5 * 0.0002) / 0.00003, rel=0.02)
    shares = StepShares(None)
    shares.cost = learnt(0.018, 0.0002, 0.00003)
    assert cold_steps(shares, "c", 1, tokens=9000, step_tokens=8192, decoding=5) == [pytest.approx(4 * 633, rel=0.02)]


def test_nothing_is_concluded_from_a_few_steps_or_from_those_that_only_decode() -> None:
    assert learnt(0.018, 0.0002, 0.00003, steps=10).per_step(5) is None
    cost = PrefillCost()
    for number in range(100):
        cost.planned(number, [1, 1], float(number))
        cost.ended(number, number + 0.5)
    assert cost.per_step(2) is None


def test_steps_planned_ahead_are_timed_from_the_end_of_the_one_before() -> None:
    ahead, cost = PrefillCost(), learnt(0.02, 0.0, 0.0001)
    now = 0.0
    ahead.planned(0, [16], now)
    for number in range(1, 41):
        tokens, before = 16 + 40 * (number % 5), 16 + 40 * ((number - 1) % 5)
        ahead.planned(number, [tokens], now)
        now += 0.02 + before * 0.0001
        ahead.ended(number - 1, now)
    assert ahead.per_step(0) == pytest.approx(cost.per_step(0), rel=0.02)
