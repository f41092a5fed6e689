"""The time between two who ask."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import Arrivals


def seen(*at: float) -> Arrivals:
    arrivals = Arrivals()
    for now in at:
        arrivals.add(now)
    return arrivals


def test_who_is_alone_is_not_followed_by_anybody() -> None:
    assert seen().gap(5.0) == seen(3.0).gap(5.0) == inf


def test_it_grows_while_nobody_asks() -> None:
    burst = seen(1.0, 1.1, 1.2)
    assert burst.gap(1.2) == pytest.approx(0.1)
    assert burst.gap(3.0) == pytest.approx(1.0)


@given(st.floats(0.01, 10), st.integers(1, 40))
def test_what_is_regular_has_one_gap_however_long_it_lasts(every: float, count: int) -> None:
    at = [n * every for n in range(count + 1)]
    assert seen(*at).gap(at[-1]) == pytest.approx(every)


def test_what_was_before_the_last_few_is_forgotten() -> None:
    regular = [100 + 0.5 * n for n in range(8)]
    assert seen(*range(50), *regular).gap(regular[-1]) == pytest.approx(0.5)
