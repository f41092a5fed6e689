"""The share of time that cold prompts take, whatever the engine's speed."""

import pytest

from agentkv.kv.cold_load import ColdLoad


def arriving(load: ColdLoad, prompts: int, *, every: float, seconds: float) -> ColdLoad:
    for number in range(prompts):
        load.look([f"c{number}"], number * every)
        load.computed(seconds)
    return load


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_it_is_the_time_that_each_takes_in_that_between_two(unit: float) -> None:
    load = arriving(ColdLoad(), 60, every=unit, seconds=0.3 * unit)
    load.look(["c60"], 60 * unit)
    assert load.share == pytest.approx(0.3, rel=0.01)


def test_nothing_is_concluded_from_a_few() -> None:
    assert arriving(ColdLoad(), 7, every=1.0, seconds=5.0).share == 0.0


def test_one_that_waits_for_long_counts_once() -> None:
    load = ColdLoad()
    for now in range(100):
        load.look(["c", "d"], float(now))
        load.computed(1.0)
    assert load.share == 0.0
    assert "c" in load
    assert "r" not in load


def test_it_falls_while_none_comes() -> None:
    load = arriving(ColdLoad(), 20, every=1.0, seconds=0.9)
    load.look([], 100.0)
    assert load.share < 0.2
