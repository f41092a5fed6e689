"""The table of guesses at recorded results, by hand-made conversations and by the recorded ones beside the tests."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.bench import judge_predictors, predictor_lines
from agentkv.chain import ChatFormat
from agentkv.cli.main import main
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import SetupError
from agentkv.tools import ToolCall

RECORDED = Path(__file__).parents[1] / "data" / "trajectories"
HOOKS = Path(__file__).parents[2] / "benchmarks" / "recorded_hooks.py"
LONG = "".join(f"Line {n} of the page about parcels.\n" for n in range(40))
OTHER = LONG[: len(LONG) // 2] + "All else is new. " * 40
BLOCK = 16


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat.load(MODEL_PATH)


def recorded(folder: Path, *results: tuple[int, str]) -> Path:
    """A file with one conversation, in which pages are read, one after the other."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Read."}]
    for number, (page, text) in enumerate(results):
        call = {"id": f"c{number}", "name": "read", "arguments": json.dumps({"page": page})}
        turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
        turns.append({"role": "tool", "content": text, "tool_call_id": f"c{number}"})
    turns.append({"role": "assistant", "content": "Done."})
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
    path = folder / "pages.jsonl"
    line = {"id": "one", "system": "You read.", "tools": [tool], "turns": turns}
    path.write_text(json.dumps(line) + "\n")
    return path


def judged(chat: ChatFormat, path: Path, **options: Any) -> dict[str, dict[str, int]]:
    result = judge_predictors([path], chat, block=BLOCK, **{"hook": None, "for_agent": False, **options})
    predictors: dict[str, dict[str, int]] = result["files"][0]["predictors"]
    return predictors


def test_an_equal_result_is_used_to_its_last_block(chat: ChatFormat, tmp_path: Path) -> None:
    found = judged(chat, recorded(tmp_path, (1, LONG), (1, LONG)))
    assert found["memo"]["guesses"] == 1
    assert found["memo"]["predicted"] == found["memo"]["used"] > 300
    assert found["memo"]["predicted"] % BLOCK == 0
    assert found["poll"]["guesses"] == found["hook"]["guesses"] == 0


def test_of_a_result_that_differs_from_its_middle_on_half_is_waste(chat: ChatFormat, tmp_path: Path) -> None:
    found = judged(chat, recorded(tmp_path, (1, LONG), (1, OTHER), (2, OTHER)))
    memo = found["memo"]
    assert 0.4 * memo["predicted"] < memo["used"] < 0.6 * memo["predicted"]
    assert memo["wasted"] == memo["predicted"] - memo["used"]
    assert found["poll"]["guesses"] == 1
    assert found["poll"]["wasted"] == 0


def test_a_hook_is_asked_first_and_must_give_text(chat: ChatFormat, tmp_path: Path) -> None:
    path = recorded(tmp_path, (1, LONG), (1, LONG))
    found = judged(chat, path, hook=lambda call: LONG if isinstance(call, ToolCall) else None)
    assert found["hook"]["guesses"] == 2
    assert found["hook"]["wasted"] == found["memo"]["guesses"] == 0
    with pytest.raises(SetupError, match="the hook returned a int for a call of 'read'"):
        judged(chat, path, hook=lambda _: 3)


def test_what_an_agent_remembers_serves_its_other_conversations(chat: ChatFormat, tmp_path: Path) -> None:
    path = recorded(tmp_path, (1, LONG))
    path.write_text(path.read_text() * 2)
    assert judged(chat, path)["memo"]["guesses"] == 0
    assert judged(chat, path, for_agent=True)["memo"]["guesses"] == 1


def test_the_command_prints_the_table_of_recorded_conversations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.json"
    options = ["--engine", "sim", "--hook", f"{HOOKS}:predict", "--json", str(file)]
    assert main(["bench", "predictors", "--trace", str(RECORDED), *options]) == 0
    result = json.loads(file.read_text(encoding="utf-8"))
    assert result["schema"] == "agentkv.predictors/1"
    assert [row["file"] for row in result["files"]] == ["bfcl", "miniswe", "sweagent", "taubench", "toolbench"]
    printed = capsys.readouterr().out.splitlines()
    assert printed == predictor_lines(result)
    assert printed[0].split() == ["file", "results", "tokens", "by", "guesses", "predicted", "used", "wasted", "right"]
    for row in result["files"]:
        assert all(0 <= each["used"] <= each["predicted"] for each in row["predictors"].values())
    assert sum(each["guesses"] for row in result["files"] for each in row["predictors"].values()) > 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--block-size", "0"], "--block-size 0 must be at least 1"),
        (["--hook", "nowhere"], "--hook: 'nowhere' names no function; give it as FILE:NAME"),
        (["--hook", f"{HOOKS}:nothing"], "has no function 'nothing'"),
    ],
)
def test_what_is_asked_for_wrongly_is_named(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "predictors", "--engine", "sim", "--trace", str(RECORDED), *options]) == 2
    assert problem in capsys.readouterr().err
