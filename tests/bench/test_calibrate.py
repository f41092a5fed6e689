"""From a measured run to a simulated machine: the simulator's own runs, whose machine is known, are the measure."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from agentkv.bench import Delay
from agentkv.bench.calibrate import compare, fit_machine, read_measured, write_preset
from agentkv.bench.step_fit import fit_steps, wait_for_step
from agentkv.bench.step_log import StepLog, StepRow
from agentkv.cli.main import main
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost, find_machine
from agentkv.engines.sim_preset import preset_json, read_preset
from agentkv.errors import EngineStartError, SetupError

Bench = Any
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GPU: dict[str, Any] = {"engine": "sim:h200", "block": 16, "floor_samples": 2, "start_spread": 2.0}


@pytest.fixture(scope="module")
def files(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three workloads on the simulated H200, as files."""
    shapes = (
        {"chains": 24, "tool_seconds": Delay("lognormal", 0.5, 0.8)},
        {"chains": 16, "prompt_tokens": 600, "result_tokens": (40, 80), "tool_seconds": Delay("uniform", 0.5, 1.5)},
        {"chains": 10, "prompt_tokens": 3000, "result_tokens": (500, 900), "tool_seconds": Delay("uniform", 0.2, 1.0)},
    )
    folder, found = tmp_path_factory.mktemp("runs"), []
    for number, shape in enumerate(shapes):
        file = folder / f"run{number}.json"
        file.write_text(json.dumps(bench("bidirectional,stock", **GPU, **shape)), encoding="utf-8")
        found.append(file)
    return found


def test_the_machine_that_was_measured_is_found_again(files: list[Path]) -> None:
    found, true = fit_machine(read_measured(files[0])), find_machine("h200")
    assert found.cost.base_s == pytest.approx(true.cost.base_s, rel=0.1)
    assert found.cost.decode_seq_s == pytest.approx(true.cost.decode_seq_s, rel=0.2)
    assert found.cost.prefill_launch_s == pytest.approx(true.cost.prefill_launch_s, rel=0.1)
    assert found.cost.prefill_token_s == pytest.approx(true.cost.prefill_token_s, rel=0.2)
    assert found.async_scheduling
    assert found.delivery_s < 0.001
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (true.max_num_seqs, true.max_num_batched_tokens)


def test_launches_that_hold_up_the_step_before_are_told_from_what_steps_take(bench: Bench, tmp_path: Path) -> None:
    cost = StepCost(base_s=0.005, context_token_s=30e-9, prefill_token_s=22e-6, prefill_host_s=0.025)
    true = evolve(find_machine("h200"), cost=cost, delivery_s=0.004)
    preset, run = tmp_path / "true.json", tmp_path / "run.json"
    preset.write_text(json.dumps(preset_json(true)), encoding="utf-8")
    load = {
        "chains": 16,
        "prompt_tokens": 4000,
        "result_tokens": (50, 1200),
        "tool_seconds": Delay("uniform", 0.2, 1.0),
    }
    run.write_text(json.dumps(bench("stock", **{**GPU, "engine": f"sim:{preset}"}, **load)), encoding="utf-8")
    found = fit_machine(read_measured(run))
    assert found.cost.prefill_host_s == pytest.approx(cost.prefill_host_s, rel=0.1)
    assert found.cost.prefill_token_s == pytest.approx(cost.prefill_token_s, rel=0.2)
    assert found.cost.base_s == pytest.approx(cost.base_s, rel=0.1)
    assert found.delivery_s == pytest.approx(true.delivery_s, abs=0.003)


def test_steps_that_were_held_up_by_chance_are_no_launches() -> None:
    decodes = [StepRow(0.01, 2, 2000, 0, 0)] * 40 + [StepRow(0.5, 2, 2000, 0, 0)]
    rows = [*decodes, *[StepRow(0.03, 2, 2000, 1000, 1_000_000)] * 10]
    assert fit_steps(rows, asynchronous=True) == fit_steps(rows)
    held = [StepRow(0.03, 2, 2000, 0, 0)] * 5
    assert fit_steps([*rows, *held], asynchronous=True).prefill_host_s == 0.03
    assert fit_steps([*rows, *held]).prefill_host_s == 0.0


def test_half_of_those_who_come_at_any_time_wait_so_long_at_most() -> None:
    assert wait_for_step([StepRow(seconds, 1, 0, 0, 0) for seconds in (2.0, 2.0, 2.0)]) == pytest.approx(1.0)
    # 1 of 1 and 3.5 of 8 lie within 3.5 of an end: half of 9.
    assert wait_for_step([StepRow(seconds, 1, 0, 0, 0) for seconds in (8.0, 1.0)]) == pytest.approx(3.5)


def test_the_machine_in_the_repository_is_what_its_run_gives() -> None:
    run = BENCHMARKS / "results" / "2026-11-30-h200-calibrate-fit.json"
    assert fit_machine(read_measured(run)) == read_preset(BENCHMARKS / "machines" / "2026-11-30-h200.json")


def test_it_holds_for_workloads_that_it_was_not_fitted_to(files: list[Path], tmp_path: Path) -> None:
    preset, (fitted, *others) = tmp_path / "machine.json", map(read_measured, files)
    write_preset(preset, fit_machine(fitted), fitted)
    for measured in others:
        row = anyio.run(compare, preset, measured, lambda _: None)
        assert row["mode"] == "stock", "the one without prefetches"
        assert abs(row["p50"]["error"]) <= 0.2
        assert abs(row["p95"]["error"]) <= 0.2


def test_the_command_prints_the_errors(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.bench.calibrate.SPEEDS", (1.0,))
    preset = tmp_path / "machine.json"
    assert main(["bench", "calibrate", str(files[2]), "--judge", str(files[1]), "--preset", str(preset)]) == 0
    out = capsys.readouterr().out
    assert "run2 (fitted)" in out
    assert out.count("%") == 4
    assert main(["bench", "calibrate", str(files[0]), "--preset", str(tmp_path / "machine.txt")]) != 0
    assert SimEngine(lambda _: [1], preset=str(preset)).info.block_size == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["workload"].update(kind="replay"), "only seed workloads"),
        (lambda r: r["modes"].pop("stock"), "no mode without prefetches"),
        (lambda r: r.pop("modes"), "is no result"),
        (lambda r: r["modes"]["stock"].pop("steps"), "no steps to fit from"),
        (lambda r: r["engine"].update(max_num_batched_tokens=None), "what a step holds"),
    ],
)
def test_what_cannot_be_fitted_is_refused(files: list[Path], tmp_path: Path, change: Any, message: str) -> None:
    result = json.loads(files[0].read_text(encoding="utf-8"))
    result["modes"]["bidirectional"]["prefetches"] = 1
    change(result)
    (tmp_path / "r.json").write_text(json.dumps(result), encoding="utf-8")
    with pytest.raises(SetupError, match=message):
        fit_machine(read_measured(tmp_path / "r.json"))


def test_a_result_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"there is no file '.*none\.json'; agentkv bench seed --json"):
        read_measured(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "is not of the schema"),
        ('{"schema": "agentkv.sim/1", "cost": {}}', "is missing, or not known"),
        ('{"schema": "agentkv.sim/1"}', "'cost' is missing"),
    ],
)
def test_a_file_that_is_no_preset_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.json").write_text(text, encoding="utf-8")
    with pytest.raises(EngineStartError, match=message):
        SimEngine(lambda _: [1], preset=str(tmp_path / "p.json"))


def test_steps_are_told_apart_by_when_tokens_arrive() -> None:
    log = StepLog()
    log.prompt(0, 0, sent_at=0.9, tokens=100, cached=0)
    log.prompt(1, 0, sent_at=1.2, tokens=300, cached=200)
    for at, agent in ((1.0, 0), (1.1, 0), (1.3, 0), (1.3005, 1), (1.4, 1), (1.4, 0)):
        log.arrived(at, agent, 0, 1)
    rows = log.rows(512)
    assert [round(row.seconds, 3) for row in rows] == [0.1, 0.2, 0.1]
    assert [row.decode_seqs for row in rows] == [1, 1, 2]
    assert [row.prefill_tokens for row in rows] == [0, 100, 0]
    assert rows[1].prefill_context == 100 * 200 + 5000
    assert rows[2].context_tokens == 300 + 1 + 100 + 3


def test_what_a_client_hands_out_slowly_is_one_step_and_two_tokens_of_one_request_are_two() -> None:
    log = StepLog()
    for agent in range(4):
        log.prompt(agent, 0, sent_at=0.0, tokens=10, cached=0)
    for start in (1.0, 2.0, 2.0055):
        for agent in range(4):
            log.arrived(start + agent * 0.0015, agent, 0, 1)
    rows = log.rows(512)
    assert [(row.decode_seqs, round(row.seconds, 4)) for row in rows] == [(4, 1.0), (4, 0.0055)]


def test_a_prompt_longer_than_a_step_is_spread_over_the_steps_before() -> None:
    log = StepLog()
    log.prompt(0, 0, sent_at=0.0, tokens=10, cached=0)
    log.prompt(1, 0, sent_at=1.0, tokens=150, cached=0)
    for at, agent in ((1.0, 0), (2.0, 0), (3.0, 0), (3.0, 1)):
        log.arrived(at, agent, 0, 1)
    assert [row.prefill_tokens for row in log.rows(100)] == [51, 99]


def test_steps_that_nobody_saw_the_end_of_are_left_out() -> None:
    log = StepLog()
    log.prompt(0, 0, sent_at=0.0, tokens=10, cached=0)
    log.prompt(1, 0, sent_at=2.5, tokens=1000, cached=0)
    for at, agent, tokens in ((1.0, 0, 1), (2.0, 0, 2), (3.0, 1, 1), (4.0, 1, 1)):
        log.arrived(at, agent, 0, tokens)
    assert [row.seconds for row in log.rows(100)] == [1.0]
