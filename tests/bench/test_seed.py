"""The seed workload through the simulator: what it must show, and that it can fail."""

from time import process_time
from typing import Any

import pytest

from agentkv.bench import Delay
from agentkv.errors import EngineError, SetupError

Bench = Any
PERCENTILES = {"p50", "p95", "p99", "n"}


def after_tool(mode: dict[str, Any], what: str = "p50") -> float:
    return mode["ttft_after_tool_ms"][what]


@pytest.fixture(scope="module")
def full(bench: Bench) -> dict[str, Any]:
    """The pool holds everything."""
    return bench("stock-off,stock,bidirectional", pool=1.0, floor_samples=6, result_pieces=4)


@pytest.fixture(scope="module")
def half(bench: Bench) -> dict[str, Any]:
    """The pool holds half of it."""
    return bench("stock,stock+cap,bidirectional", pool=0.5)


def test_it_is_repeatable_by_its_seed(bench: Bench) -> None:
    first, second = (bench("stock,bidirectional", pool=0.7, result_pieces=3, floor_samples=2) for _ in range(2))
    for result in (first, second):
        del result["engine"]["engine_id"]
    assert first == second
    assert bench("stock", pool=0.7, seed=2)["modes"]["stock"]["task_s"] != first["modes"]["stock"]["task_s"]


def test_without_reuse_everything_is_computed(full: dict[str, Any]) -> None:
    tokens = full["modes"]["stock-off"]["tokens"]
    assert tokens["computed"] == tokens["prompt"] > 0
    assert full["modes"]["stock-off"]["reduction"] == {"critical": 0.0, "total": 0.0}


def test_the_same_work_in_every_mode(full: dict[str, Any]) -> None:
    for mode in full["modes"].values():
        assert mode["tokens"]["prompt"] == full["modes"]["stock"]["tokens"]["prompt"]
        assert mode["tokens"]["generated"] == 12 * 4 * 24
        assert mode["ttft_ms"]["n"] == 12 * 4
        assert mode["ttft_after_tool_ms"]["n"] == 12 * 3
        assert mode["task_s"]["n"] == 12
        assert mode["tokens"]["cached"] + mode["tokens"]["computed"] == mode["tokens"]["prompt"]


def test_with_room_for_all_only_new_tokens_are_computed(full: dict[str, Any]) -> None:
    stock = full["modes"]["stock"]
    assert stock["recomputed_after_eviction"] == 0
    assert stock["evictions"] == dict.fromkeys(("unleased", "speculative", "branch", "chain", "anchor"), 0)
    assert 0 < stock["peak_pool"] <= 1


def test_following_takes_the_result_off_the_critical_path(full: dict[str, Any]) -> None:
    stock, ours = full["modes"]["stock"], full["modes"]["bidirectional"]
    assert ours["reduction"]["critical"] > stock["reduction"]["critical"] + 0.02
    assert ours["tokens"]["prefetched_used"] > 0
    # Nothing is saved in all: what is prefilled ahead is computed, too.
    assert ours["reduction"]["total"] <= stock["reduction"]["total"]
    assert after_tool(ours) < 0.7 * after_tool(stock)


def test_without_the_follower_nothing_is_gained(bench: Bench, full: dict[str, Any]) -> None:
    without = bench("bidirectional", pool=1.0, result_pieces=4, without=("follow", "leases"))["modes"]["bidirectional"]
    assert without["config"]["follow"] is False
    assert without["reduction"] == full["modes"]["stock"]["reduction"]
    assert without["tokens"]["prefetched"] == without["prefetches"] == 0
    assert after_tool(without) == after_tool(full["modes"]["stock"])


def test_with_the_follower_off_the_reduction_is_that_of_stock(bench: Bench, full: dict[str, Any]) -> None:
    without = bench("bidirectional", pool=1.0, result_pieces=4, without=("follow",))["modes"]["bidirectional"]
    assert without["in_force"]["leases"] == "on"
    assert without["reduction"]["critical"] == pytest.approx(full["modes"]["stock"]["reduction"]["critical"], abs=1e-3)
    assert without["reduction"]["critical"] < full["modes"]["bidirectional"]["reduction"]["critical"] - 0.02


def test_half_the_pool_is_a_cliff_and_a_cap_removes_it(full: dict[str, Any], half: dict[str, Any]) -> None:
    stock, capped = half["modes"]["stock"], half["modes"]["stock+cap"]
    assert after_tool(stock) > 4 * after_tool(full["modes"]["stock"])
    assert stock["recomputed_after_eviction"] > 0
    assert after_tool(capped) < 1.2 * after_tool(full["modes"]["stock"])
    assert half["ratios"]["stock+cap/stock"]["ttft_after_tool_p50"] < 0.25
    assert half["ratios"]["stock+cap/stock"]["makespan"] < 1


def test_admission_and_leases_remove_the_cliff_too(full: dict[str, Any], half: dict[str, Any]) -> None:
    ours = half["modes"]["bidirectional"]
    assert ours["in_force"] == {"leases": "on", "order": "on", "admission": "on"}
    assert after_tool(ours) < 1.2 * after_tool(full["modes"]["stock"])
    assert half["ratios"]["bidirectional/stock"]["ttft_after_tool_p95"] < 0.5
    assert ours["recomputed_after_eviction"] == 0
    assert ours["evictions"]["chain"] == 0
    assert ours["policy_records"]["admission.queue"] > 0


def test_with_admission_off_the_cliff_is_back(bench: Bench, half: dict[str, Any]) -> None:
    ours = bench("bidirectional", pool=0.5, without=("admission",))["modes"]["bidirectional"]
    assert ours["in_force"]["admission"].startswith("off")
    assert after_tool(ours) > 4 * after_tool(half["modes"]["bidirectional"])


def test_the_cap_was_found_by_trial(half: dict[str, Any]) -> None:
    capped = half["modes"]["stock+cap"]
    trials = {trial["cap"]: trial for trial in capped["cap_trials"]}
    assert len(trials) >= 3
    best = min(trials.values(), key=lambda t: t["ttft_p95_ms"] * t["makespan_s"])
    assert capped["config"]["cap"] == best["cap"]
    assert capped["makespan_s"] == best["makespan_s"]


def test_waiting_for_a_slot_counts_in_the_first_ttft(bench: Bench) -> None:
    mode = bench("stock+cap", cap=1, start_spread=0)["modes"]["stock+cap"]
    # One after the other: the last agent waits for eleven others.
    assert mode["held_s"]["p99"] > 0.8 * mode["makespan_s"]
    assert mode["ttft_first_ms"]["p99"] >= 1e3 * mode["held_s"]["p99"]
    assert mode["task_s"]["p99"] > 0.9 * mode["makespan_s"]


def test_parts_of_a_resume_add_up(full: dict[str, Any]) -> None:
    for mode in full["modes"].values():
        parts = mode["breakdown_ms"]
        assert set(parts) == {"client", "queue", "prefill", "delivery"}
        assert parts["prefill"]["p50"] <= after_tool(mode)
        assert parts["client"]["p50"] == parts["delivery"]["p50"] == 0


def test_floor_and_ideal_are_below_what_load_makes_of_them(full: dict[str, Any]) -> None:
    assert full["floor_ms"]["n"] == full["ideal_ms"]["n"] == 6
    assert 0 < full["ideal_ms"]["p50"] < full["floor_ms"]["p50"] <= after_tool(full["modes"]["bidirectional"])
    assert full["ratios"]["bidirectional/floor"]["ttft_after_tool_p50"] >= 1


def test_the_machine_form_is_complete(full: dict[str, Any]) -> None:
    assert next(iter(full.items())) == ("schema", "agentkv.bench/1")
    assert full.keys() >= {"machine", "versions", "workload", "engine", "modes", "floor_ms", "ideal_ms", "ratios"}
    assert full["workload"]["pool"] == 1.0
    assert full["workload"]["text"].startswith("random token ids")
    for mode in full["modes"].values():
        for name in ("ttft_ms", "ttft_after_tool_ms", "task_s"):
            assert mode[name].keys() == PERCENTILES
        assert mode["tokens"].keys() >= {"prompt", "computed", "cached", "prefetched", "prefetched_used", "wasted"}
        assert mode["reduction"].keys() == {"critical", "total"}
        assert mode.keys() >= {"config", "makespan_s", "evictions", "recomputed_after_eviction", "preemptions"}
        assert mode.keys() >= {"peak_pool", "occupancy", "spread", "rounds"}
        assert [each["round"] for each in mode["rounds"]] == [0, 1, 2, 3]
    assert full["ratios"]["bidirectional/stock"].keys() >= {"ttft_after_tool_p50", "ttft_after_tool_p95", "makespan"}


def test_repetitions_are_interleaved_and_their_spread_is_told(bench: Bench) -> None:
    lines: list[str] = []
    mode = bench("stock,bidirectional", repeat=2, chains=3, progress=lines.append)["modes"]["stock"]
    ends = [line.partition(":")[0] for line in lines if "all agents done" in line]
    assert ends == [f"{name}, repetition {n} of 2" for n in (1, 2) for name in ("stock", "bidirectional")]
    assert mode["repetitions"] == 2
    assert mode["ttft_ms"]["n"] == 2 * 3 * 4
    once = mode["makespan_s"]
    assert mode["spread"]["makespan"] == {"min": once, "max": once, "values": [once, once]}


def test_a_pool_too_small_for_one_agent_is_refused(bench: Bench) -> None:
    with pytest.raises(SetupError, match=r"pool=0\.01 of the working set.*give at least 0\.\d+"):
        bench("stock", pool=0.01)


def test_an_engine_that_fails_ends_the_benchmark_with_its_own_error(bench: Bench) -> None:
    with pytest.raises(EngineError, match="max_model_len is 1024"):
        bench("stock", options={"max_model_len": 1024})


@pytest.mark.parametrize("wrong", [{"repeat": 0}, {"pool": 0.0}, {"floor_samples": -1}, {"block": 0}])
def test_numbers_out_of_bounds_are_refused(bench: Bench, wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=next(iter(wrong))):
        bench("stock", **wrong)


def test_eight_times_the_agents_take_about_eight_times_the_work(bench: Bench) -> None:
    # All are alive at once, as the 10,000 of docs/bench.md are.
    few: dict[str, Any] = {
        "prompt_tokens": 96,
        "shared_tokens": 32,
        "history_turns": 1,
        "result_tokens": (20, 30),
        "tool_calls": 1,
    }
    few |= {"tool_seconds": Delay("uniform", 60.0, 60.0)}

    def seconds(chains: int) -> float:
        began = process_time()
        result = bench("bidirectional", pool=1.1, chains=chains, start_spread=0.01 * chains, **few)
        assert result["modes"]["bidirectional"]["task_s"]["n"] == chains
        return process_time() - began

    seconds(10)
    # Other work on the machine slows one of a pair down by half now and then, and not all three of them.
    assert any(seconds(480) <= 1.6 * 8 * seconds(60) for _ in range(3))
