"""From a measured run to a simulated machine: the simulator's own runs, whose machine is known, are the measure."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentkv.bench import Delay
from agentkv.bench.calibrate import compare, fit_machine, read_measured, write_preset
from agentkv.bench.step_log import StepLog
from agentkv.cli.main import main
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import find_machine
from agentkv.errors import EngineStartError, SetupError

Bench = Any
GPU: dict[str, Any] = {"engine": "sim:h200", "block": 16, "floor_samples": 2, "start_spread": 2.0}


@pytest.fixture(scope="module")
def files(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three workloads on the simulated H200, as files."""
    shapes = (
        {"chains": 24, "tool_seconds": Delay("lognormal", 0.5, 0.8)},
        {"chains": 40, "prompt_tokens": 600, "result_tokens": (40, 80), "tool_seconds": Delay("uniform", 0.5, 1.5)},
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


def test_it_holds_for_workloads_that_it_was_not_fitted_to(files: list[Path], tmp_path: Path) -> None:
    preset, (fitted, *others) = tmp_path / "machine.json", map(read_measured, files)
    write_preset(preset, fit_machine(fitted), fitted)
    for measured in others:
        row = anyio.run(compare, preset, measured, lambda _: None)
        assert row["mode"] == "stock", "the one without prefetches"
        assert abs(row["p50"]["error"]) <= 0.2
        assert abs(row["p95"]["error"]) <= 0.2


def test_the_command_prints_the_errors(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = tmp_path / "machine.json"
    assert main(["bench", "calibrate", str(files[0]), "--judge", str(files[1]), "--preset", str(preset)]) == 0
    out = capsys.readouterr().out
    assert "run0 (fitted)" in out
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
