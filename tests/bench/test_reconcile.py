"""The clients' books against the engine's."""

from typing import Any

import pytest
from attrs import evolve

from agentkv.bench import Delay
from agentkv.bench.reconcile import reconcile
from agentkv.bench.snapshot import Snapshot, sum_totals

Bench = Any
# Tools so quick that resumes come upon prefetches in flight.
FAST = Delay("uniform", 0.2, 0.6)
NOTHING = {"answered": {"requests": 0, "prompt": 0, "computed": 0}, "unanswered": {"requests": 0, "computed": 0}}
BEFORE = Snapshot(
    at=0.0,
    totals=sum_totals(()),
    generations=0,
    recomputed=0,
    prefetches=0,
    prefetch_prompt=0,
    counters={"policy": {"work": {**NOTHING, "recomputed": 0}}, "computed_tokens": 0},
)


def after(**counters: Any) -> Snapshot:
    """Two generations of 100 tokens, 60 of them cached, and one prefetch of 64, all of it computed."""
    totals = evolve(BEFORE.totals, prompt=200, cached=120, computed=80, prefetched=64, aborted=32)
    return evolve(
        BEFORE,
        at=1.0,
        totals=totals,
        generations=2,
        prefetches=1,
        prefetch_prompt=64,
        counters={"policy": {}, **counters},
    )


def work(requests: int = 3, computed: int = 144, unanswered: int = 7, recomputed: int = 0) -> dict[str, Any]:
    return {
        "work": {
            "answered": {"requests": requests, "prompt": 264, "computed": computed},
            "unanswered": {"requests": 1, "computed": unanswered},
            "recomputed": recomputed,
        }
    }


@pytest.mark.parametrize(
    ("counters", "agrees"),
    [
        ({}, None),
        ({"engine": {"local_compute": 144, "local_cache_hit": 120}}, True),
        # What was sent and never read may have been counted by the engine: at most what was cut off.
        ({"engine": {"local_compute": 144 + 32}}, True),
        ({"engine": {"local_compute": 144 + 33}}, False),
        ({"engine": {"local_compute": 143}}, False),
        ({"policy": work()}, True),
        ({"policy": work(computed=145)}, False),
        ({"policy": work(computed=143)}, False),
        ({"policy": work(requests=2)}, False),
        # One more was answered than was read.
        ({"policy": work(requests=4, computed=144 + 32)}, True),
        ({"policy": work(requests=4, computed=143)}, False),
        ({"policy": work(), "engine": {"local_compute": 144}}, True),
        ({"policy": work(), "engine": {"local_compute": 145}}, False),
        ({"policy": work(requests=4, computed=176), "engine": {"local_compute": 176}}, True),
        ({"steps": 9, "computed_tokens": 144}, True),
        ({"steps": 9, "computed_tokens": 145}, False),
        ({"steps": 9, "computed_tokens": 144 + 7, "policy": work()}, True),
        ({"steps": 9, "computed_tokens": 144 + 8, "policy": work()}, False),
        ({"steps": 9, "computed_tokens": 144 + 7 + 50, "policy": work(recomputed=50), "preemptions": 1}, True),
    ],
)
def test_books_agree_to_the_token_or_say_so(counters: dict[str, Any], agrees: bool | None) -> None:
    found = reconcile(BEFORE, after(**counters), whole=True)
    assert found["agrees"] is agrees
    assert found["answered"] == {"requests": 3, "prompt": 264, "cached": 120, "computed": 144}


def test_a_window_is_not_reconciled() -> None:
    found = reconcile(BEFORE, after(engine={"local_compute": 1}), whole=False)
    assert found["agrees"] is None
    assert "window" in found["why"]


@pytest.mark.parametrize("without", [(), ("admission",), ("follow",), ("leases",)])
def test_every_token_that_the_simulator_computed_is_accounted_for(bench: Bench, without: tuple[str, ...]) -> None:
    result = bench("stock-off,stock,bidirectional", pool=0.5, result_pieces=4, without=without, tool_seconds=FAST)
    for name, mode in result["modes"].items():
        (account,) = mode["reconciliation"]["repetitions"]
        # A stock scheduler that repeats work tells nobody how much.
        assert account["agrees"] is (None if mode["preemptions"] and account["scheduler"] is None else True), name
    ours = result["modes"]["bidirectional"]
    (account,) = ours["reconciliation"]["repetitions"]
    if not without:
        assert account["scheduler"]["unanswered"]["requests"] > 0, "no prefetch was cut off: nothing was tested"
        assert account["scheduler"]["unanswered"]["computed"] <= ours["tokens"]["aborted"]
