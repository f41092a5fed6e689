"""Distributions of tool times."""

from random import Random
from statistics import median

import pytest

from agentkv.bench import Delay
from agentkv.errors import SetupError


def test_uniform_stays_within_its_bounds() -> None:
    drawn = [Delay.parse("1:3").draw(Random(seed)) for seed in range(200)]
    assert 1 <= min(drawn) < 1.2
    assert 2.8 < max(drawn) <= 3


def test_lognormal_has_the_median_and_spread_asked_for() -> None:
    delay, rng = Delay.parse("lognormal:1.2:0.8"), Random(1)
    drawn = sorted(delay.draw(rng) for _ in range(4000))
    assert median(drawn) == pytest.approx(1.2, rel=0.05)
    # One sigma above the median of the logarithm.
    assert drawn[int(4000 * 0.8413)] == pytest.approx(1.2 * 2.2255, rel=0.07)


@pytest.mark.parametrize("text", ["1:3", "0:0", "lognormal:1.2:0.8"])
def test_it_reads_what_it_writes(text: str) -> None:
    assert str(Delay.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "3:1",
        "-1:2",
        "1:2:3",
        "1:inf",
        "lognormal:0:1",
        "lognormal:1",
        "normal:1:2",
        "lognormal:1:11",
        "lognormal:1e99:1",
    ],
)
def test_nonsense_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(SetupError, match=r"'LO:HI'.*'lognormal:MEDIAN:SIGMA'"):
        Delay.parse(text)
