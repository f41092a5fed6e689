"""The command line, as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

import agentkv as akv
from agentkv.cli import main
from agentkv.report import Incident

EXAMPLES = Path(__file__).parents[2] / "examples"
HELLO = str(EXAMPLES / "hello_tool.py")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_run_prints_the_answer_and_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "run", HELLO, "--engine", "sim")
    assert status == 0
    assert out.startswith("The capital of France is Paris.\n")
    assert "KV ledger (tokens)" in out
    assert "prefill token reduction" in out


def test_run_as_json_begins_with_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "run", HELLO, "--engine", "sim", "--json")
    report = json.loads(out)
    assert status == 0
    assert next(iter(report.items())) == ("schema", "agentkv.run/1")
    assert report["output"] == "The capital of France is Paris."
    assert report["totals"]["reduction"].keys() == {"critical", "total"}


def test_what_gave_way_stands_behind_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = run(capsys, "run", HELLO, "--engine", "sim")
    assert "gave way" not in plain
    _, as_json, _ = run(capsys, "run", HELLO, "--engine", "sim", "--json")
    assert json.loads(as_json)["kv_incidents"] == []

    async def ask() -> Any:
        async with akv.Runtime("sim") as rt:
            return await rt.run(akv.Agent("a", instructions="Say."), "Hi")

    evicted = {"lease_class": "chain", "reason": "room", "for_whom": "b/1", "times": 2, "blocks": 3, "size": 6_000_000}
    report = evolve(anyio.run(ask).kv, incidents=(Incident(kind="lease.evict", **evicted),))
    assert report.text().endswith("\n  lease.evict chain  2 times, 3 blocks, 6.0 MB: room, for b/1")
    assert report.to_json()["kv_incidents"] == [{"kind": "lease.evict", "ms": 0.0, **evicted}]


def test_a_report_claims_no_wait_saved_by_steps_that_were_waited_for() -> None:
    async def ask() -> Any:
        async with akv.Runtime("sim") as rt:
            return await rt.run(akv.Agent("a", instructions="Say."), "Hi")

    report = anyio.run(ask).kv
    for ended, sentence in ((128, ": the resume did not wait"), (96, ", at least 32 of them in steps that the resume")):
        sums = evolve(report.totals, prefetched=ended, prefetched_used=128, aborted=64)
        assert evolve(report, totals=sums).saving().startswith(f"128 tokens were prefilled ahead and used{sentence}")


def test_a_typed_output_is_plain_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "run", str(EXAMPLES / "plan_act_replan.py"), "--engine", "sim", "--json")
    assert json.loads(out)["output"] == {"volume": "degraded", "act": "tonight"}


def test_a_file_without_a_script_gets_a_made_up_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import agentkv as akv\nmine = akv.Agent('mine', instructions='Answer.')\n")
    status, out, _ = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--kv-transfer-mode", "prefix")
    assert status == 0
    assert "kv_transfer_mode=prefix" in out


@pytest.mark.parametrize("turns", ["[akv.testing.say('Good day.')]", "{'': [akv.testing.say('Good day.')]}"])
def test_a_script_may_be_plain_turns(capsys: pytest.CaptureFixture[str], tmp_path: Path, turns: str) -> None:
    file = tmp_path / "mine.py"
    agent = "import agentkv as akv\nmine = akv.Agent('mine', instructions='Answer.')\n"
    file.write_text(f"{agent}script = {turns}\n")
    status, out, _ = run(capsys, "run", str(file), "Hello?", "--engine", "sim")
    assert (status, out.partition("\n")[0]) == (0, "Good day.")


def test_what_is_no_script_is_said_to_be_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import agentkv as akv\nmine = akv.Agent('mine', instructions='Answer.')\nscript = 5\n")
    status, _, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim")
    assert status != 0
    assert "script=5 is no script; give a list of turns" in err


def test_an_answer_that_was_cut_off_is_said_to_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    agent = "import agentkv as akv\nmine = akv.Agent('mine', instructions='Answer.', max_tokens=2)\n"
    file.write_text(f"{agent}script = [akv.testing.say('A long answer, longer than two tokens.')]\n")
    _, _, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim")
    assert "agentkv: the answer was cut off; give it a larger max_tokens, Limits.tokens or context" in err
    _, out, _ = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--json")
    assert json.loads(out)["complete"] is False


FAILING = """
import agentkv as akv

@akv.tool
def look(number: int) -> str:
    "Look."
    return "nothing"

mine = akv.Agent("mine", instructions="Answer.", tools=[look])
script = [akv.testing.call("look", number=1)]
"""


def test_a_run_that_fails_has_a_report_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for end, kind in (("", "ScriptError"), ("* 60", "LimitExceeded")):
        file.write_text(f"{FAILING.rstrip()} {end}\n")
        status, out, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--quiet")
        assert status == 1
        assert err.startswith("agentkv: ")
        assert err.count("\n") == 1
        assert "KV ledger (tokens)" in out
        status, out, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--quiet", "--json")
        found = json.loads(out)
        assert status == 1
        assert (found["output"], found["complete"], found["outcome"]) == (None, False, "run_failed")
        assert found["error"]["kind"] == kind
        assert found["error"]["message"] in err


def test_a_file_may_have_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{FAILING.rstrip()} * 9\nlimits = akv.Limits(steps=3)\n")
    status, _, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--quiet")
    assert status == 1
    assert "Limits.steps=3 reached; give the run or its Runtime larger limits=akv.Limits(steps=...)" in err
    file.write_text(f"{FAILING}limits = 3\n")
    status, _, err = run(capsys, "run", str(file), "Hello?", "--engine", "sim", "--quiet")
    assert status == 2
    assert "limits=3" in err


def test_a_run_that_fails_before_it_asks_has_nothing_to_account_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FAILING)
    status, out, err = run(capsys, "run", str(file), "A long story. " * 20_000, "--engine", "sim", "--quiet")
    assert (status, out) == (1, "")
    assert "agentkv: PromptTooLong: " in err


def test_the_journal_is_kept_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    assert run(capsys, "run", HELLO, "--engine", "sim", "--store", f"sqlite:{path}")[0] == 0
    assert path.stat().st_size > 0


def test_graph_draws_mermaid(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "graph", f"{EXAMPLES / 'plan_act_replan.py'}:graph")
    assert status == 0
    assert "replan" in out
    assert "continue" in out


def test_doctor_prints_capabilities_and_the_template_probe(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "doctor", "sim")
    assert status == 0
    assert "blocks of 32 tokens" in out
    assert "in force" in out
    assert "after a tool result   yes" in out
    assert "EngineKV(cpu_tier_bytes=BYTES)" in out


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "doctor", "sim", "--json")
    findings = json.loads(out)
    assert findings["schema"] == "agentkv.doctor/1"
    assert findings["template"]["boundaries"]["tool result"]["append_only"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.py"], "no file 'nowhere.py'"),
        (["run", HELLO + ":nobody"], "no agent or graph 'nobody'; it has 'agent'"),
        (["run", HELLO, "--engine", "tpu"], "'tpu'"),
        (["run", HELLO, "--engine", "sim:fast"], "'fast'"),
        (["run", HELLO, "--engine", "http://localhost:1"], "not supported yet"),
        (["run", HELLO, "--engine", "sim", "--store", "redis:x"], "'redis:x'"),
        (["doctor", "http://localhost:1"], "not supported yet"),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert status in (1, 2)
    assert out == ""
    assert words in err
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1


def test_an_agent_that_needs_deps_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "needy.py"
    file.write_text("import agentkv as akv\nneedy = akv.Agent('needy', instructions='x', deps=dict)\n")
    status, _, err = run(capsys, "run", str(file), "Hi", "--engine", "sim")
    assert status == 2
    assert "deps=dict" in err


def test_a_file_that_fails_to_import_names_its_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import agentkv\nraise RuntimeError('mine')\n")
    status, _, err = run(capsys, "run", str(file), "Hi", "--engine", "sim")
    assert status == 2
    assert "RuntimeError: mine" in err
    assert "broken.py" in err


def test_two_agents_must_be_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "import agentkv as akv\na = akv.Agent('a', instructions='x')\nb = akv.Agent('b', instructions='x')\n"
    )
    status, _, err = run(capsys, "run", str(file), "Hi", "--engine", "sim")
    assert status == 2
    assert "'a', 'b'" in err


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "agentkv.cli.main", "graph", HELLO]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "plan" in done.stdout
