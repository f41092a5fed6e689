"""Where prefilling ahead pays, and that auto finds it: a small part of the sweep that the documentation shows."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentkv.bench import Delay
from agentkv.bench.sweep import Grid, sweep, sweep_lines
from agentkv.cli.main import main
from agentkv.errors import SetupError

GRID = Grid(
    prompt_tokens=(500, 3000),
    tool_calls=(3,),
    tool_seconds=(Delay("uniform", 0.1, 0.3), Delay("uniform", 2.0, 4.0)),
    seeds=2,
    chains=10,
    output_tokens=32,
)


def ignore(_: str) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        return await sweep("sim:h200", GRID, block=16, progress=ignore)

    return anyio.run(run)


def test_auto_is_never_much_worse_than_the_better_of_the_two(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for figure in ("mean", "task_s"):
            best = min(row["modes"][mode][figure] for mode in ("stock", "bidirectional"))
            assert row["modes"]["auto"][figure] <= 1.03 * best, row


def test_it_pays_where_tools_take_their_time(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        ahead, stock = row["modes"]["bidirectional"], row["modes"]["stock"]
        if row["tool_seconds"] == "2:4":
            assert ahead["mean"] < 0.85 * stock["mean"]
        assert stock["prefetches"] == 0


def test_the_table_has_a_line_a_point(rows: list[dict[str, Any]]) -> None:
    lines = sweep_lines(rows)
    assert len(lines) == 2 + len(rows) == 6
    assert lines[2].startswith("| 500 | 3 | 0.1:0.3 |")
    assert {line.count("|") for line in lines} == {7}


def test_the_command_writes_the_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.json"
    small = ["--prompt-tokens", "200", "--tool-calls", "1", "--tool-seconds", "1:1", "--seeds", "1", "--chains", "2"]
    assert main(["bench", "sweep", *small, "--json", str(file)]) == 0
    assert "| 200 | 1 | 1:1 |" in capsys.readouterr().out
    found = json.loads(file.read_text(encoding="utf-8"))
    assert next(iter(found.items())) == ("schema", "agentkv.sweep/1")
    assert set(found["points"][0]["modes"]) == {"stock", "bidirectional", "auto"}
    assert main(["bench", "sweep", "--prompt-tokens", "many"]) != 0


def test_a_point_has_a_seed_at_least() -> None:
    with pytest.raises(SetupError, match="seeds=0"):
        Grid(prompt_tokens=(1,), tool_calls=(1,), tool_seconds=(), seeds=0)
