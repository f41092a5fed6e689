"""Tasks per minute against p95 TTFT after a tool."""

from typing import Any

import anyio
import pytest

from agentkv.bench.cap import best_cap
from agentkv.bench.frontier import frontier_lines
from agentkv.errors import SetupError

Bench = Any
LOAD: dict[str, Any] = {"engine": "sim:h200", "chains": 8, "start_spread": 2.0, "duration": 30.0, "pool": 1.0}


@pytest.fixture(scope="module")
def result(bench: Bench) -> dict[str, Any]:
    return bench("stock,bidirectional", frontier=(24, 4, 12), bound_ms=120.0, **LOAD)


def test_each_mode_has_a_point_for_each_number_of_agents(result: dict[str, Any]) -> None:
    frontier = result["frontier"]
    assert frontier["bound_ms"] == 120.0
    for mode in frontier["modes"].values():
        assert [point["agents"] for point in mode["points"]] == [4, 12, 24]
        for point in mode["points"]:
            assert point["within_bound"] == (point["ttft_after_tool_p95_ms"] <= 120.0)
            assert point["spread"]["tasks_per_minute"]["values"] == [point["tasks_per_minute"]]
        within = [point for point in mode["points"] if point["within_bound"]]
        assert mode["best"] == max(within, key=lambda point: point["tasks_per_minute"])
    # What stands beside the frontier is measured under the largest load.
    assert result["workload"]["load"]["agents"] == 24
    last = frontier["modes"]["stock"]["points"][-1]
    assert result["modes"]["stock"]["tasks_per_minute"] == last["tasks_per_minute"]


def test_beyond_the_pool_stock_falls_off_and_ours_does_not(result: dict[str, Any]) -> None:
    stock, ours = (result["frontier"]["modes"][name] for name in ("stock", "bidirectional"))
    assert stock["best"]["agents"] < 24
    assert ours["best"]["agents"] == 24
    assert ours["best"]["tasks_per_minute"] > 1.1 * stock["best"]["tasks_per_minute"]
    lines = frontier_lines(result["frontier"])
    assert lines[0].endswith("within 120 ms")
    assert lines[1].startswith("stock: ")
    assert "24 agents" in lines[2]


def test_a_bound_that_nothing_meets_has_no_best_point(bench: Bench) -> None:
    frontier = bench("stock", frontier=(4,), bound_ms=0.001, **LOAD)["frontier"]
    assert frontier["modes"]["stock"]["best"] is None
    assert frontier_lines(frontier)[1] == "stock: no point is within the bound"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"frontier": (4, 0)}, "frontier: 0 agents"),
        ({"frontier": (4, 4)}, "listed twice"),
        ({"frontier": (4,), "bound_ms": 0.0}, "bound_ms=0 must be above 0"),
        ({"frontier": (4,), "bound_ms": float("nan")}, "bound_ms=nan"),
    ],
)
def test_nonsense_is_refused(bench: Bench, more: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        bench("stock", **{**LOAD, **more})


class Tried:
    """A repetition as far as trials of limits look at it."""

    def __init__(self, p95: float, rate: float) -> None:
        self._found = {"ttft_after_tool_ms": {"p95": p95, "n": 1}, "tasks_per_minute": rate, "makespan_s": None}

    def to_json(self) -> dict[str, Any]:
        return self._found


@pytest.mark.parametrize(
    ("bound", "best"),
    [
        # The least p95 per task a minute.
        (None, 10),
        # The most tasks a minute within the bound.
        (200.0, 20),
        # None is within it: the least p95.
        (50.0, 10),
    ],
)
def test_the_best_limit_depends_on_what_is_asked_of_it(bound: float | None, best: int) -> None:
    tried = {7: Tried(101.0, 40.0), 10: Tried(100.0, 60.0), 20: Tried(190.0, 90.0), 30: Tried(900.0, 95.0)}
    # Half way to what is too late, until it is near.
    tried |= {25: Tried(250.0, 93.0), 22: Tried(210.0, 92.0)}

    async def attempt(cap: int) -> Any:
        return tried[cap]

    cap, trials = anyio.run(best_cap, [10, 20, 30], 30, attempt, bound)
    assert cap == best
    assert [trial["cap"] for trial in trials][:3] == [10, 20, 30]


@pytest.mark.parametrize(
    ("first", "bound", "best", "asked"),
    [
        # Larger ones while the largest is the best.
        ([20, 25], None, 60, [20, 25, 38, 57, 60]),
        ([1], None, 5, [1, 2, 3, 4, 6]),
        ([10, 20, 30], None, 21, [10, 20, 30]),
        ([20, 25], None, 4, [20, 25]),
        # Smaller ones while none is within the bound.
        ([20, 25], 3.0, 5, [20, 25, 13, 9, 6, 7]),
        ([20, 25], 0.5, 5, [20, 25, 13, 9, 6, 4]),
        # One that limits nothing needs no trial.
        ([60], None, 60, []),
    ],
)
def test_limits_beyond_the_first_guesses_are_tried_where_there_is_reason_to(
    first: list[int], bound: float | None, best: int, asked: list[int]
) -> None:
    """P95 of a limit is how far it is from the best one."""
    tried: list[int] = []

    async def attempt(cap: int) -> Any:
        tried.append(cap)
        return Tried(1.0 + abs(cap - best), 1.0)

    cap, trials = anyio.run(best_cap, first, 60, attempt, bound)
    assert tried == asked == [trial["cap"] for trial in trials]
    assert cap == min(tried or first, key=lambda each: abs(each - best))


def test_a_limit_under_which_nothing_ended_is_the_worst() -> None:
    async def attempt(cap: int) -> Any:
        return Tried(1.0, 0.0) if cap == 1 else Tried(500.0, 3.0)

    assert anyio.run(best_cap, [1, 2], 2, attempt, None)[0] == 2
