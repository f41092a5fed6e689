"""Percentiles, and how repetitions become one figure."""

from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.bench.measure import figures, percentile
from agentkv.bench.results import merge, ratios, spread
from agentkv.bench.turn import Turn, UnderWay

TTFT = ("ttft_ms", "ttft_after_tool_ms", "ttft_branch_ms", "ttft_join_ms")
numbers = st.lists(st.floats(0, 1e6), min_size=2, max_size=60)


def test_percentiles_by_hand() -> None:
    assert [percentile([4, 1, 3, 2], p) for p in (0, 50, 100)] == [1, 2.5, 4]
    assert percentile(list(range(101)), 95) == 95
    assert percentile([1, 2], 95) == pytest.approx(1.95)
    assert percentile([7], 99) == 7


@given(numbers)
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    cuts = quantiles(values, n=100, method="inclusive")
    for percent in (50, 95, 99):
        assert percentile(values, percent) == pytest.approx(cuts[percent - 1], rel=1e-9, abs=1e-6)


def test_figures_scale_and_count() -> None:
    assert figures([0.1, 0.3], scale=1e3) == {"p50": 200.0, "p95": 290.0, "p99": 298.0, "n": 2}
    assert figures([]) == {"p50": None, "p95": None, "p99": None, "n": 0}


def test_merging_takes_medians_and_adds_up_counts() -> None:
    runs = [{"a": {"p50": value, "n": 2}, "b": None if value == 9 else 1} for value in (1, 9, 3)]
    assert merge(runs) == {"a": {"p50": 3, "n": 6}, "b": None}


def test_a_ratio_over_nothing_is_none() -> None:
    figure = {"p50": 0, "p95": None}
    mode = {**dict.fromkeys(TTFT, figure), "task_s": figure, "makespan_s": 4}
    mode |= {"tasks_per_minute": 0.0, "computed_per_prompt_token": None}
    found = ratios({"stock": mode, "stock+cap": {**mode, "makespan_s": 3}}, None)
    assert found["stock+cap/stock"]["makespan"] == 0.75
    assert found["stock+cap/stock"]["ttft_p50"] is None
    assert found["stock+cap/stock"]["ttft_p95"] is None
    assert found["stock+cap/stock"]["tasks_per_minute"] is None
    assert found["stock+cap/floor"] == {"ttft_after_tool_p50": None}


def test_ratios_are_over_the_simpler_mode_however_modes_were_listed() -> None:
    figure = {"p50": 1, "p95": 1}
    mode = {**dict.fromkeys(TTFT, figure), "task_s": figure, "makespan_s": 4}
    mode |= {"tasks_per_minute": 1.0, "computed_per_prompt_token": 1.0}
    names = ("bidirectional@0.7", "stock+cap", "bidirectional@0.9", "stock")
    assert [name for name in ratios(dict.fromkeys(names, mode), 1.0) if "floor" not in name] == [
        "stock+cap/stock",
        "bidirectional@0.7/stock",
        "bidirectional@0.7/stock+cap",
        "bidirectional@0.9/stock",
        "bidirectional@0.9/stock+cap",
        "bidirectional@0.9/bidirectional@0.7",
    ]


def test_a_spread_has_every_value() -> None:
    assert spread([3, 1, 2]) == {"min": 1, "max": 3, "values": [3, 1, 2]}
    assert spread([3, None]) is None


def test_the_parts_of_a_turn_add_up_to_its_ttft() -> None:
    turn = Turn(
        chain=0,
        number=1,
        source="tool",
        ready_at=10.0,
        held_s=2.0,
        sent_at=12.5,
        first_at=15.0,
        done_at=18.0,
        prompt=100,
        cached=64,
        generated=4,
        queue_s=1.0,
        prefill_s=1.25,
    )
    assert turn.ttft_s == 5.0
    assert (turn.client_s, turn.delivery_s, turn.inter_token_s) == (0.5, 0.25, 1.0)
    assert turn.held_s + turn.client_s + 1.0 + 1.25 + turn.delivery_s == turn.ttft_s


def test_a_generation_under_way_has_waited_until_its_first_token_or_until_now() -> None:
    waiting = UnderWay("tool", ready_at=2.0)
    assert waiting.waited(7.0) == 5.0
    waiting.first_at = 3.5
    assert waiting.waited(7.0) == 1.5
