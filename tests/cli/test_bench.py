"""``agentkv bench seed``, as a user calls it."""

import json
from pathlib import Path

import pytest

from agentkv.cli import main

SMALL = (
    "--engine",
    "sim:h200",
    "--chains",
    "4",
    "--prompt-tokens",
    "600",
    "--shared-tokens",
    "200",
    "--tool-calls",
    "2",
)


def test_it_prints_a_table_and_writes_the_machine_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    status = main(("bench", "seed", *SMALL, "--pool", "1", "--floor-samples", "2", "--json", str(file)))
    out, err = capsys.readouterr()
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("mode")
    assert [line.split("  ")[0] for line in lines[1:4]] == ["stock", "stock+cap (4)", "bidirectional"]
    assert "floor" in out
    assert "bidirectional/stock: " in out
    assert "stock, repetition 1 of 1: all agents done" in err
    result = json.loads(file.read_text())
    assert next(iter(result.items())) == ("schema", "agentkv.bench/1")
    assert result["workload"]["chains"] == 4
    assert result["engine"]["options"]["pool_blocks"] == result["workload"]["working_set_blocks"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--result-tokens", "many"), "--result-tokens is LO:HI"),
        (("--tool-seconds", "soon"), "a delay is 'LO:HI'"),
        (("--engine-option", "max_num_seqs"), "give NAME=VALUE"),
        (("--engine-option", "dtype=float32"), "with a JSON value"),
        (("--json", "/nowhere/at/all.json"), "there is no folder '/nowhere/at'"),
        (("--modes", "stok"), "there is no mode 'stok'"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str) -> None:
    status = main(("bench", "seed", *SMALL, *options))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1
    assert message in err


def test_an_engine_option_reaches_the_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    options = ("--modes", "stock", "--engine-option", "max_num_seqs=2", "--floor-samples", "0", "--json", str(file))
    assert main(("bench", "seed", *SMALL, *options)) == 0
    assert json.loads(file.read_text())["engine"]["options"]["max_num_seqs"] == 2
    assert "floor" not in capsys.readouterr().out
