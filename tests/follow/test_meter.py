"""Learning what steps take from requests alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import Load, Meter
from agentkv.kv import LeastSquares


@given(
    truth=st.lists(st.floats(0, 10), min_size=3, max_size=3),
    rows=st.lists(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), min_size=12, max_size=30),
)
def test_exact_sums_are_explained(truth: list[float], rows: list[list[float]]) -> None:
    fit = LeastSquares([1.0] * 3, [1e4] * 3)
    measured = [sum(a * b for a, b in zip(row, truth, strict=True)) for row in rows]
    for row, seconds in zip(rows, measured, strict=True):
        if seconds > 0.01:
            fit.add(row, seconds)
    found = fit.solve()
    assert all(value >= 0 for value in found)
    for row, seconds in zip(rows, measured, strict=True):
        if seconds > 0.01:
            assert sum(a * b for a, b in zip(row, found, strict=True)) == pytest.approx(seconds, rel=0.01, abs=0.01)


def test_without_observations_it_is_what_was_guessed() -> None:
    assert LeastSquares([1.0, 0.2], [1.0, 1.0]).solve() == pytest.approx([1.0, 0.2])


def test_a_coefficient_that_would_be_negative_is_nothing() -> None:
    fit = LeastSquares([1.0, 1.0], [100.0, 100.0])
    for a, b, seconds in ((1, 1, 1.0), (1, 2, 0.5), (2, 1, 3.0)):
        fit.add([a, b], seconds)
    first, second = fit.solve()
    assert second == 0
    assert first > 0


@given(st.lists(st.tuples(st.sampled_from([2, 512, 8192]), st.floats(1e-12, 1e9)), min_size=1, max_size=20))
def test_steps_of_any_length_are_solved(steps: list[tuple[int, float]]) -> None:
    fit = LeastSquares([0.01, 0.0002, 0.0001], [0.05, 0.005, 0.003])
    for tokens, seconds in steps:
        fit.add([1.0, 50, tokens], seconds)
    assert all(value >= 0 for value in fit.solve())


def test_what_is_old_is_forgotten() -> None:
    fit = LeastSquares([1.0], [10.0], memory=0.9)
    for _ in range(100):
        fit.add([1.0], 5.0)
    for _ in range(100):
        fit.add([1.0], 1.0)
    assert fit.solve()[0] == pytest.approx(1.0, rel=0.01)


def test_a_generation_counts_from_the_asking_to_its_end() -> None:
    meter = Meter()
    first, second = meter.generation(0.0, 100), meter.generation(0.0, 100)
    assert meter.load == Load(asked=2)
    first.first(1.0)
    assert meter.load == Load(asked=1, decoding=1)
    first.close(2.0)
    second.close(2.0)
    assert meter.load == Load()


def test_one_that_is_held_is_no_load_until_its_first_token() -> None:
    meter = Meter()
    held = meter.generation(0.0, 100, held=True)
    assert meter.load == Load()
    held.first(60.0)
    assert meter.load == Load(decoding=1)
    assert meter.times == Meter().times, "a minute of it was no step"
    held.close(61.0)
    gone = meter.generation(61.0, 100, held=True)
    gone.close(62.0)
    assert meter.load == Load()


def test_generations_that_decode_side_by_side_tell_what_a_step_takes() -> None:
    base, seq, launch, token = 0.005, 0.0002, 0.010, 0.00004
    meter, now = Meter(), 0.0
    for round_, beside in enumerate([1, 2, 4, 8, 16, 32] * 4):
        together = [meter.generation(now, 0) for _ in range(beside)]
        for each in together:
            each.first(now)
        # Steps of decoding, and now and then one with a prefetch in it.
        now += 21 * (base + beside * seq)
        for _ in range(round_ % 4):
            size = 100 * (1 + round_ % 5)
            ahead = meter.prefetch(now, size)
            now += launch + size * token
            ahead.computed(now, size)
            meter.prefetched()
        for each in together:
            each.done(now, 22)
            each.close(now)
        now += 1.0
    times = meter.times
    assert times.base_s == pytest.approx(base, rel=0.1)
    assert times.decode_seq_s == pytest.approx(seq, rel=0.1)
    assert times.launch_s == pytest.approx(launch, rel=0.3)
    assert times.token_s == pytest.approx(token, rel=0.3)
