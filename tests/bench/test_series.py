"""Who holds the pool over time, and what was evicted for whom."""

from typing import Any

import anyio
import pytest

from agentkv.bench import evictions, series
from agentkv.bench.evictions import EvictionLog
from agentkv.bench.series import MAX_POINTS, Sampler
from agentkv.engines import EngineInfo
from agentkv.engines.clock import VirtualClock
from agentkv.engines.sim import SimEngine
from agentkv.kv import Recorder

Bench = Any
MANAGED = ["anchor", "chain", "branch", "speculative", "running", "cached", "free"]


@pytest.fixture(scope="module")
def half(bench: Bench) -> dict[str, Any]:
    return bench("stock,bidirectional", pool=0.5, result_pieces=4)["modes"]


def test_shares_add_up_to_the_pool_at_every_moment(half: dict[str, Any]) -> None:
    for mode in half.values():
        times = [point[0] for point in mode["occupancy"]["points"]]
        assert times == sorted(set(times))
        for _, *shares in mode["occupancy"]["points"]:
            assert len(shares) == len(mode["occupancy"]["classes"])
            assert sum(shares) == pytest.approx(1.0, abs=1e-3)
            assert all(0 <= share <= 1 for share in shares)


def test_classes_are_what_the_engine_can_tell_apart(half: dict[str, Any]) -> None:
    assert half["stock"]["occupancy"]["classes"] == ["running", "cached", "free"]
    assert half["bidirectional"]["occupancy"]["classes"] == MANAGED
    chain = MANAGED.index("chain") + 1
    ever = max(point[chain] for point in half["bidirectional"]["occupancy"]["points"])
    assert 0.3 < ever <= 0.85


def test_the_peak_is_the_most_that_requests_and_leases_held(half: dict[str, Any]) -> None:
    for mode in half.values():
        classes, points = mode["occupancy"]["classes"], mode["occupancy"]["points"]
        held = [at for at, name in enumerate(classes, 1) if name not in ("cached", "free")]
        most = max(sum(point[at] for at in held) for point in points)
        assert mode["peak_pool"] == pytest.approx(most, abs=1e-3)
        assert 0.5 < most <= 1


def test_long_runs_are_looked_at_less_often() -> None:
    async def sampled(seconds: float) -> Any:
        clock = VirtualClock()
        async with SimEngine(lambda _: (1,), clock=clock) as engine, anyio.create_task_group() as tasks:
            sampler = Sampler(engine)
            tasks.start_soon(sampler.run)
            await clock.sleep(seconds)
            tasks.cancel_scope.cancel()
        return sampler.series()

    short, long = anyio.run(sampled, 10.0), anyio.run(sampled, 5000.0)
    assert len(short.points) == pytest.approx(40, abs=1)
    assert MAX_POINTS <= len(long.points) <= 2 * MAX_POINTS
    assert long.points[0][0] == 0
    assert long.points[-1][0] > 4900
    gaps = [later[0] - sooner[0] for sooner, later in zip(long.points, long.points[1:], strict=False)]
    assert max(gaps) <= 2 * min(gaps[-10:])


@pytest.mark.parametrize("without", [(), ("admission",)])
def test_looking_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]) -> None:
    looked = bench("bidirectional", pool=0.5, result_pieces=3, without=without)["modes"]["bidirectional"]
    monkeypatch.setattr(series, "SAMPLE_SECONDS", 1e6)
    monkeypatch.setattr(evictions, "PAUSE_SECONDS", 1e6)
    unseen = bench("bidirectional", pool=0.5, result_pieces=3, without=without)["modes"]["bidirectional"]
    assert len(unseen["occupancy"]["points"]) == 1
    for figure in ("ttft_ms", "ttft_after_tool_ms", "task_s", "makespan_s", "tokens", "evictions", "policy_records"):
        assert looked[figure] == unseen[figure]


class Telling:
    """An engine as far as its records are read."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.info = EngineInfo(
            name="x",
            engine_id="",
            model="",
            model_path="",
            block_size=32,
            max_model_len=99,
            capabilities={"leases": "on"},
        )

    async def kv(self, operation: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert operation == "events"
        found, cursor, lost = self.recorder.events(payload["after"], payload["limit"], payload["kinds"])
        return {"events": [each.as_wire() for each in found], "cursor": cursor, "lost": lost}


def test_evictions_are_summed_up_by_class_reason_and_who_needed_the_room() -> None:
    recorder = Recorder(capacity=10_000)
    for _ in range(3):
        recorder.add("lease.evict", 0.0, run="s/1", lease_class="chain", reason="room", for_whom="s/2/0", blocks=5)
        for _ in range(2000):
            recorder.add("lease.renew", 0.0)
    recorder.add("lease.evict", 0.0, run="s/1", lease_class="chain", reason="room", for_whom="s/3/4", blocks=2)
    recorder.add(
        "lease.evict", 0.0, run="s/2", lease_class="speculative", reason="budget", for_whom="s/3/ahead/1", blocks=1
    )
    log = EvictionLog(Telling(recorder), "s", 0)  # type: ignore[arg-type]
    anyio.run(log.read)
    assert log.to_json() == {
        "causes": [
            {"class": "chain", "reason": "room", "for": "first prompt", "times": 3, "blocks": 15},
            {"class": "chain", "reason": "room", "for": "resume", "times": 1, "blocks": 2},
            {"class": "speculative", "reason": "budget", "for": "prefetch", "times": 1, "blocks": 1},
        ],
        "pairs": [
            {"of": "agent 1", "for": "agent 2", "blocks": 15},
            {"of": "agent 1", "for": "agent 3", "blocks": 2},
            {"of": "agent 2", "for": "agent 3", "blocks": 1},
        ],
        "lost": 0,
    }


def test_without_admission_leases_give_way_and_the_result_says_for_whom(bench: Bench) -> None:
    mode = bench("bidirectional", pool=0.5, without=("admission",))["modes"]["bidirectional"]
    causes = mode["evicted"]["causes"]
    assert {cause["class"] for cause in causes} >= {"chain"}
    by_class = {name: sum(c["blocks"] for c in causes if c["class"] == name) for name in ("chain", "speculative")}
    assert by_class == {name: mode["evictions"][name] for name in by_class}
    assert mode["evicted"]["lost"] == 0
    assert all(
        pair["of"].startswith("agent ") and pair["for"].startswith("agent ") for pair in mode["evicted"]["pairs"]
    )
