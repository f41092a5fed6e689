"""Guesses that are all wrong cost little: on the simulator exactly, by the command that measures a real engine."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.bench.interval import ratio_interval
from agentkv.errors import SetupError

COMMAND = Path(__file__).parents[2] / "benchmarks" / "wrong_guesses.py"
times = st.floats(0.1, 10)


def measured(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert runpy.run_path(str(COMMAND))["main"](["--engine", "sim", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_task_time_hardly_grows_and_waste_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "--pairs", "4", "--fresh")
    assert found["guessed"]["predicted"] > 500
    assert found["guessed"]["used"] == 0
    assert found["wasted"] >= found["guessed"]["predicted"]
    assert found["task_time_on_over_off"]["lower"] <= 1.03
    assert found["cut_off_per_resume"] <= found["prefetch_step"]


def test_who_was_wrong_is_not_believed_again(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "--pairs", "2")
    assert found["guessed"]["predicted"] == 0
    assert found["task_time_on_over_off"]["upper"] <= 1.03


@settings(max_examples=25)
@given(st.lists(st.tuples(times, times), min_size=1, max_size=12), st.integers(0, 9))
def test_an_interval_holds_its_ratio_and_no_more_than_the_pairs_do(pairs: list[tuple[float, float]], seed: int) -> None:
    lower, ratio, upper = ratio_interval(pairs, seed=seed)
    ratios = [one / other for one, other in pairs]
    assert min(ratios) - 1e-9 <= lower <= ratio + 1e-9 <= upper + 2e-9 <= max(ratios) + 3e-9
    assert ratio_interval(pairs, seed=seed) == (lower, ratio, upper)


def test_an_interval_needs_times() -> None:
    for pairs in ([], [(1.0, 0.0)]):
        with pytest.raises(SetupError, match="at least one pair"):
            ratio_interval(pairs, seed=0)
