"""A steady load: agents that end are replaced, and only the window counts."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from agentkv.bench import ModeConfig, SeedShape
from agentkv.bench.repetition import run_repetition
from agentkv.bench.steady import Steady, endless
from agentkv.chain import Chain
from agentkv.engines.sim import SimEngine
from agentkv.errors import SetupError
from agentkv.kv import PolicySettings

Bench = Any
Shape = Callable[..., SeedShape]
STEADY: dict[str, Any] = {"engine": "sim:h200", "chains": 6, "start_spread": 2.0, "duration": 40.0}


def keys(plan: Any) -> list[bytes]:
    chain = Chain.empty()
    for segment in plan.prompt():
        chain = chain.extend(segment)
    return list(chain.block_keys(32))


def test_agents_come_again_and_share_the_anchor_alone_with_who_they_were(shape: Shape) -> None:
    plans = list(islice(endless(shape(chains=2)), 6))
    assert [plan.number for plan in plans] == [0, 1, 2, 3, 4, 5]
    whole = 300 // 32
    first, again, third = (keys(plans[number]) for number in (0, 2, 4))
    for one, other in ((first, again), (again, third), (first, third)):
        assert one[:whole] == other[:whole]
        assert not set(one[whole:]) & set(other[whole:])
        assert len(one) == len(other)
    assert plans[2].waits == plans[0].waits
    assert plans[2].end_tokens == plans[0].end_tokens
    assert {plan.starts_at for plan in plans} == {0.0}


def test_agents_without_an_anchor_come_again_as_others(shape: Shape) -> None:
    plans = list(islice(endless(shape(chains=1, shared_tokens=0)), 2))
    assert not set(keys(plans[0])) & set(keys(plans[1]))


def test_however_many_there_are_they_arrive_as_the_workload_says(shape: Shape) -> None:
    four = shape(chains=4, start_spread=8)
    assert Steady(agents=2, duration=100).starts(four) == [0, 4]
    assert Steady(agents=8, duration=100).starts(four) == [0, 0, 2, 2, 4, 4, 6, 6]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"agents": 0, "duration": 9.0}, "0 agents"),
        ({"agents": 1, "duration": 0.0}, "duration=0 must be above 0"),
        ({"agents": 1, "duration": float("inf")}, "duration=inf"),
        ({"agents": 1, "duration": float("nan")}, "duration=nan"),
        ({"agents": 1, "duration": 10.0, "settle": 10.0}, "settle_seconds=10 must be at least 0 and below duration=10"),
        ({"agents": 1, "duration": 10.0, "settle": -1.0}, "settle_seconds=-1"),
    ],
)
def test_numbers_that_leave_no_window_are_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Steady(**numbers)


def test_agents_that_arrive_in_the_window_are_refused(shape: Shape) -> None:
    with pytest.raises(SetupError, match="give a duration of 32 or more"):
        Steady(agents=4, duration=20.0).check(shape(chains=4, start_spread=10.0 + 2 / 3))


@pytest.fixture(scope="module")
def steady(bench: Bench) -> dict[str, Any]:
    return bench("stock,bidirectional", pool=0.6, **STEADY)


def test_only_the_window_counts(steady: dict[str, Any]) -> None:
    assert steady["workload"]["load"] == {"agents": 6, "duration": 40.0, "settle": 10.0}
    for mode in steady["modes"].values():
        assert mode["window_s"] == 30.0
        assert mode["makespan_s"] is None
        # More tasks than agents: those that ended were replaced.
        assert mode["task_s"]["n"] > 6
        assert mode["tasks_per_minute"] == pytest.approx(2 * mode["task_s"]["n"])
        assert mode["reconciliation"]["agrees"] is None
        # Four turns a task, but for those tasks that the ends of the window cut in two.
        assert abs(mode["ttft_ms"]["n"] - 4 * mode["task_s"]["n"]) < 4 * 6
        spans = [turn for task in mode["timeline"] for turn in task["turns"]]
        assert min(ready for ready, _, _ in spans) < 10.0
        assert 0 < mode["tokens"]["computed"] < mode["tokens"]["prompt"]


def test_what_still_waits_when_the_load_is_taken_away_counts_as_waiting(bench: Bench) -> None:
    # One slot and many who want it: most first prompts of the window never get their turn.
    mode = bench("stock+cap", cap=1, **{**STEADY, "chains": 12})["modes"]["stock+cap"]
    assert mode["censored"]["first"] > 0
    assert mode["censored"]["after_tool"] == 0
    started = mode["ttft_first_ms"]["n"] - mode["censored"]["first"]
    assert started < mode["ttft_first_ms"]["n"]
    assert mode["ttft_first_ms"]["p99"] > 10_000


async def test_agents_that_are_taken_away_leave_nothing_in_the_engine(shape: Shape) -> None:
    mode = ModeConfig(follow=True, leases=True, admission=True)
    engine = SimEngine(lambda request: range(request.max_tokens), preset="h200", pool_blocks=150, kv=PolicySettings())
    async with engine:
        steady = Steady(agents=6, duration=20.0)
        found = await run_repetition(engine, shape(start_spread=2.0), mode, "s", lambda _: None, steady)
        assert found.tasks
        stats = await engine.kv("stats", {})
        left = ("leases", "runs", "held_requests", "live_requests", "prefetches")
        assert {name: stats[name] for name in left} == dict.fromkeys(left, 0)
        assert stats["free_blocks"] == stats["pool_blocks"]
        engine.check_integrity()


@pytest.mark.parametrize("more", [{"frontier": (2, 4)}, {"settle": 3.0}])
def test_what_needs_a_duration_says_so(bench: Bench, more: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="give --duration SECONDS"):
        bench("stock", **more)
