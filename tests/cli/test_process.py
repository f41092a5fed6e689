"""The command line as a process: signals, closed pipes, and what stands on which stream."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import agentkv as akv
from agentkv.cli import main

ROOT = Path(__file__).parents[2]
HELLO = str(ROOT / "examples" / "hello_tool.py")
AGENTKV = [sys.executable, "-m", "agentkv"]

SLOW = """
import anyio
import agentkv as akv
from pathlib import Path

@akv.tool
async def wait_long() -> str:
    "Waits for real, not on the simulator's clock."
    Path("began").touch()
    try:
        await anyio.sleep(60)
    finally:
        Path("closed").touch()
    return "over"

agent = akv.Agent("slow", instructions="Wait.", tools=[wait_long])
prompt = "Wait."
script = akv.testing.Script([akv.testing.call("wait_long"), akv.testing.say("Done.")])
"""


def test_sigterm_ends_a_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    command = [*AGENTKV, "run", "slow.py", "--engine", "sim", "--store", "sqlite:runs.db"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # The call is announced when the tool has been started.
        for line in process.stderr:
            if line.startswith("> wait_long"):
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(timeout=30) == 143
    assert rest.splitlines()[-1] == "agentkv: terminated"
    assert (tmp_path / "closed").exists() == (tmp_path / "began").exists()
    assert _last_event(tmp_path / "runs.db") == "run_cancelled"


def _last_event(path: Path) -> str:
    import anyio

    from agentkv.store import SQLiteStore

    async def read() -> str:
        store = SQLiteStore(path)
        await store.open()
        try:
            (run,) = await store.runs()
        finally:
            await store.aclose()
        return run.last

    return anyio.run(read)


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            [*AGENTKV, "graph", HELLO], stdout=gone, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.stderr == ""
    assert done.returncode == 141


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(("--version",))
    assert done.value.code == 0
    assert capsys.readouterr().out == f"agentkv {akv.__version__}\n"


def test_a_run_shows_itself_on_the_error_stream_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("run", HELLO, "--engine", "sim")) == 0
    shown = capsys.readouterr()
    assert main(("run", HELLO, "--engine", "sim", "--quiet")) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert shown.out.splitlines()[0] == quiet.out.splitlines()[0] == "The capital of France is Paris."
    lines = shown.err.splitlines()
    assert '> capital_of {"country":"France"}' in lines
    assert "< act[0] ok" in lines
    assert lines[-1] == "The capital of France is Paris."


def test_engine_options_reach_the_engine_of_run_and_doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(("doctor", "sim", "--engine-option", "block_size=16", "--engine-option", "pool_blocks=50")) == 0
    assert "blocks of 16 tokens, 50 in the pool" in capsys.readouterr().out
    without_script = tmp_path / "mine.py"
    without_script.write_text("import agentkv as akv\nmine = akv.Agent('mine', instructions='Answer.')\n")
    for target in ((HELLO,), (str(without_script), "Hello?")):
        assert main(("run", *target, "--engine", "sim", "--engine-option", "block_size=16", "--json")) == 0
        assert '"block_size": 16' in capsys.readouterr().out


@pytest.mark.parametrize("command", [("run", HELLO), ("doctor",)])
@pytest.mark.parametrize(
    ("option", "message"), [("max_model_len", "give NAME=JSON"), ("dtype=float32", "the value as JSON")]
)
def test_an_engine_option_that_is_none_is_one_line(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], option: str, message: str
) -> None:
    assert main((*command, "--engine-option", option)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_file_named_from_its_folder_names_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("import agentkv\n\nraise RuntimeError('mine')\n")
    monkeypatch.chdir(tmp_path)
    assert main(("run", "broken.py", "Hi", "--engine", "sim")) == 2
    assert "broken.py (line 3) does not import: RuntimeError: mine" in capsys.readouterr().err


def test_help_names_what_is_looked_for_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(("run", "--help"))
    out = capsys.readouterr().out
    for name in ("graph, agent", "prompt ", "deps ", "script "):
        assert f"\n  {name}" in out


FORK = """
import agentkv as akv

adviser = akv.Agent("adviser", instructions="Advise.")
graph = akv.Graph("advice")
plan = graph.plan("plan", adviser)
options = graph.fork("options", {"cheap": "The cheapest.", "safe": "The safest."})
best = graph.join("best", options, akv.all_of())
answer = graph.replan("answer", adviser)
graph.path(akv.START, plan, options, best, answer)
prompt = "What now?"

def turn(text, tag):
    return "Glue it." if "cheap" in tag else "Replace it." if "safe" in tag else "Well."

script = akv.testing.Script(turn)
"""


def test_text_of_branches_is_shown_branch_by_branch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fork.py").write_text(FORK)
    assert main(("run", str(tmp_path / "fork.py"), "--engine", "sim")) == 0
    lines = capsys.readouterr().err.splitlines()
    for label, text in (("cheap", "Glue it."), ("safe", "Replace it.")):
        assert lines[lines.index(f"[options.{label}]") + 1] == text
