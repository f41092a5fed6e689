"""``agentkv bench``, as a user calls it."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentkv.cli import main
from agentkv.cli.bench_output import write_text
from agentkv.errors import AgentKVError

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
    assert result["complete"] is True
    assert "not complete" not in out
    assert result["workload"]["chains"] == 4
    assert result["engine"]["options"]["pool_blocks"] == result["workload"]["working_set_blocks"]


def test_it_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.html"
    options = ("--modes", "stock,bidirectional", "--kv-pool-ratio", "0.5,0.9", "--html", str(file))
    assert main(("bench", "seed", *SMALL, *options)) == 0
    assert "bidirectional@0.5" in capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "bidirectional@0.9" in text


def test_a_steady_load_and_its_frontier(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    load = (
        "--duration",
        "20",
        "--settle-seconds",
        "8",
        "--start-spread",
        "4",
        "--frontier",
        "2,4",
        "--bound-ms",
        "150",
    )
    assert main(("bench", "seed", *SMALL, "--modes", "stock", *load, "--json", str(file))) == 0
    out, err = capsys.readouterr()
    assert "frontier: most tasks per minute with p95 TTFT after a tool within 150 ms" in out
    assert "stock, repetition 1 of 1, 4 agents: " in err
    result = json.loads(file.read_text())
    assert result["workload"]["load"] == {"agents": 4, "duration": 20.0, "settle": 8.0}
    assert [point["agents"] for point in result["frontier"]["modes"]["stock"]["points"]] == [2, 4]


def test_what_was_measured_is_kept_though_nobody_reads_the_table(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agentkv", "bench", "seed", *SMALL, "--modes", "stock", "--json", str(file)]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.close(writer)
    assert ended.returncode == 141
    assert json.loads(file.read_text())["schema"] == "agentkv.bench/1"


def test_what_was_measured_is_kept_though_the_rest_was_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    options = ("--modes", "stock,bidirectional", "--repeat", "1000", "--json", str(file))
    command = [sys.executable, "-m", "agentkv", "bench", "seed", *SMALL, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("stock, repetition 2 of 1000: all"):
                break
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        table = process.stdout.read()
        assert process.wait(timeout=30) == 143
    result = json.loads(file.read_text())
    assert result["complete"] is False
    assert list(result["modes"]) == ["stock", "bidirectional"]
    assert result["modes"]["bidirectional"]["repetitions"] >= 1
    assert "bidirectional/stock: " in table
    assert "not complete" in table


def test_a_disk_that_is_full_costs_the_file_and_not_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("bench", "seed", *SMALL, "--modes", "stock", "--repeat", "2", "--json", "/dev/full")) == 1
    out, err = capsys.readouterr()
    assert out.startswith("mode")
    assert "--json /dev/full was not written (No space left on device): make room, or name another" in err
    assert "stock, repetition 2 of 2: all" in err


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file, link = tmp_path / "result.json", tmp_path / "link.json"
    link.symlink_to(file)
    write_text("--json", link, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(AgentKVError, match="was not written"):
            write_text("--json", link, "new" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_file_that_was_there_is_not_lost_to_a_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text("old")
    for json_file in (file, tmp_path / "new.json"):
        assert main(("bench", "seed", *SMALL, "--json", str(json_file), "--html", str(tmp_path))) == 2
        assert "--html" in capsys.readouterr().err
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--html", "/nowhere/at/all.html"), "there is no folder '/nowhere/at'"),
        (("--html", "/proc/version"), "--html /proc/version cannot be written"),
        (("--json", "."), "--json . cannot be written (Is a directory): name another file"),
        (("--duration", "20", "--frontier", "0"), "--frontier: 0 agents; give numbers of at least 1"),
        (("--duration", "20", "--frontier", "4,x"), "--frontier is a list of numbers separated by commas; got '4,x'"),
        (("--frontier", "4"), "--frontier: a steady load has a duration; give --duration SECONDS"),
        (("--pool", "inf"), "--pool inf must be above 0 and at most 1000: a share of the working set"),
        (("--duration", "20"), "give a duration of 36 or more"),
        (("--duration", "5", "--settle-seconds", "9"), "--settle-seconds 9 must be at least 0 and below --duration 5"),
        (("--kv-pool-ratio", "0.7,"), "--kv-pool-ratio is a list of numbers separated by commas; got '0.7,'"),
        (("--kv-pool-ratio", "0.7,1.5"), "--kv-pool-ratio 1.5 must be above 0 and at most 1"),
        (("--modes", "stock+offload"), "give --cpu-tier-bytes"),
        (("--modes", "stock+offload", "--cpu-tier-bytes", "32 gigs"), "--cpu-tier-bytes '32 gigs': give bytes, as"),
        (("--modes", "stock+offload", "--cpu-tier-bytes", "2GiB"), "which the engine 'sim:h200' does not have"),
        (("--result-tokens", "many"), "--result-tokens is LO:HI"),
        (("--tool-seconds", "soon"), "--tool-seconds: a delay is 'LO:HI'"),
        (("--engine-option", "max_num_seqs"), "give NAME=JSON"),
        (("--engine-option", "dtype=float32"), "the value as JSON"),
        (("--json", "/nowhere/at/all.json"), "there is no folder '/nowhere/at'"),
        (("--modes", "stok"), "--modes: there is no mode 'stok'"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str) -> None:
    status = main(("bench", "seed", *SMALL, *options))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1
    assert message in err


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--duration", "20", "--start-spread", "1", "--frontier", "1", "--floor-samples", "1")
    assert main(("bench", "seed", *SMALL, "--chains", "1", "--modes", "stock", *load)) == 0
    out, err = capsys.readouterr()
    assert "floor: 1 resume on the idle engine\n" in err
    assert "stock, repetition 1 of 1, 1 agent: " in err
    assert "(p50 / p95 of 1 resume on the idle engine)" in out
    assert " with 1 agent (p95 " in out
    assert "\n  1 agent: " in out


@pytest.mark.parametrize("workload", ["seed", "replay", "hashes", "fanout", "sweep", "predictors"])
def test_help_tells_defaults_and_not_that_there_is_none(capsys: pytest.CaptureFixture[str], workload: str) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(("bench", workload, "--help"))
    told = capsys.readouterr().out
    assert "(default: 32)" in told or "(default: 16)" in told
    assert "default: None" not in " ".join(told.split())
    assert "default: []" not in told


def test_help_tells_the_numbers_of_both_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(("bench", "fanout", "--help"))
    told = " ".join(capsys.readouterr().out.split())
    assert "of each trunk (default: 4)" in told
    assert "(default: forks 8, kvcomm 6)" in told
    assert "(default: forks 150:350, kvcomm 512)" in told
    assert "(default: forks no, kvcomm yes)" in told


def test_an_engine_option_reaches_the_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    options = ("--modes", "stock", "--engine-option", "max_num_seqs=2", "--floor-samples", "0", "--json", str(file))
    assert main(("bench", "seed", *SMALL, *options)) == 0
    assert json.loads(file.read_text())["engine"]["options"]["max_num_seqs"] == 2
    assert "floor" not in capsys.readouterr().out


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    turns = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "find", "arguments": {}}]},
        {"role": "tool", "tool_call_id": "c", "content": "On the shelf. " * 30, "latency_s": 0.5},
        {"role": "assistant", "content": "On the shelf."},
    ]
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps({"id": f"t{n}", "system": f"Be {n}.", "turns": turns}) + "\n" for n in range(3)))
    return path


def test_a_replay_is_one_command(capsys: pytest.CaptureFixture[str], conversations: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = ("bench", "replay", "--engine", "sim:h200", "--trace", str(conversations.parent), "--chains", "4")
    assert main((*command, "--modes", "stock,bidirectional", "--floor-samples", "1", "--json", str(file))) == 0
    out, err = capsys.readouterr()
    assert "text: recorded, word by word" in out
    assert "waits: 4 recorded" in out
    assert "rendering conversations of 1 file\n" in err
    found = json.loads(file.read_text())["workload"]
    assert (found["kind"], found["trace"], found["tokenizer"]) == ("replay", ["talk.jsonl"], "sim_model")
    assert (found["chains"], found["distinct"], found["generations"]) == (4, 3, 8)


def test_hashes_are_one_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    requests = [
        {"t": n, "in": 100 + 64 * n, "out": 9, "hash_ids": list(range(n + 1)), "think_time": 1.0} for n in range(3)
    ]
    (tmp_path / "s.json").write_text(json.dumps({"id": "s", "block_size": 64, "requests": requests}))
    command = ("bench", "hashes", "--engine", "sim", "--trace", str(tmp_path / "s.json"), "--modes", "stock")
    assert main((*command, "--delay-cap", "0.5", "--limit", "1", "--json", str(tmp_path / "out.json"))) == 0
    assert "waits: recorded think times, none above 0.5 s" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["workload"]["sessions"] == 1


def test_a_fanout_is_one_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"))
    numbers = ("--chains", "2", "--branches", "3", "--output-tokens", "40:60", "--prompt-tokens", "600", "--apart")
    command = ("bench", "fanout", "--engine", "sim:h200", "--modes", "stock,bidirectional", *numbers, *files)
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "branch p50" in lines[0]
    assert "after tool" not in lines[0]
    assert any(line.startswith("new in the prompts of branches 288 tokens") for line in lines)
    assert any(line.startswith("  bidirectional: ") and "p50 by branch, ms: " in line for line in lines)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["workload"]["kind"] == "fanout"
    assert found["workload"]["output_tokens"] == [40, 60]
    assert found["ratios"]["bidirectional/stock"].keys() >= {"ttft_branch_p50", "ttft_join_p50"}
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "TTFT of branches" in text
    assert "TTFT behind joins" in text
    assert "TTFT after a tool" not in text


@pytest.mark.parametrize("options", [("--output-tokens", "4:x"), ("--shared-tokens", "9000"), ("--branches", "0")])
def test_a_fanout_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    assert main(("bench", "fanout", "--engine", "sim", *options)) == 2
    assert options[0].lstrip("-").replace("-", "_") in capsys.readouterr().err.replace("-", "_")


@pytest.mark.parametrize(
    ("workload", "options", "message"),
    [
        ("replay", ("--chains", "0"), "--chains 0 must be at least 1"),
        ("replay", ("--max-tokens", "3"), "widen --min-tokens and --max-tokens"),
        (
            "replay",
            ("--tokenizer", "nowhere"),
            "--tokenizer nowhere: no such folder; give --tokenizer PATH, a folder with tokenizer.json",
        ),
        ("replay", ("--delay-cap", "nan"), "--delay-cap nan must be at least 0"),
        ("replay", ("--think-times", "nowhere"), "--think-times: nowhere: no such file or folder; name what is there"),
        ("replay", ("--trace", "nowhere"), "--trace: nowhere: no such file or folder"),
        ("hashes", ("--trace", "nowhere"), "--trace: nowhere: no such file or folder"),
        ("hashes", ("--limit", "-1"), "--limit -1 must be at least 1"),
        ("hashes", (), "talk.jsonl holds trajectories; what is needed here are session hashes or request hashes"),
    ],
)
def test_a_mistake_in_a_trace_or_about_it_is_one_line(
    capsys: pytest.CaptureFixture[str], conversations: Path, workload: str, options: tuple[str, ...], message: str
) -> None:
    status = main(("bench", workload, "--engine", "sim", "--trace", str(conversations), *options))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_a_sweep_that_cannot_be_written_is_not_begun(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "none" / "x.json"
    assert main(("bench", "sweep", "--engine", "sim:h200", "--json", str(file))) == 2
    assert "there is no folder" in capsys.readouterr().err
