"""``agentkv advise``, as a user calls it, on each kind of trace."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

import agentkv as akv
from agentkv.cli import main
from agentkv.store import SQLiteStore

from .mistakes import one_line

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "trajectories"
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}


def found(capsys: pytest.CaptureFixture[str], trace: Path, *options: str) -> dict[str, Any]:
    assert main(("advise", str(trace), *options, "--json")) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert next(iter(result.items())) == ("schema", "agentkv.advise/1")
    assert len(result["answers"]) == 4
    return result


@pytest.fixture
def device(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return ("--model", str(tmp_path), "--memory", "80GiB", "--weights-bytes", "16GB")


def test_a_journal_tells_of_waiting_and_of_tools(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, device: tuple[str, ...]
) -> None:
    path = tmp_path / "runs.db"
    for _ in range(2):
        run = ("run", str(ROOT / "examples" / "parallel_tools.py"), "--engine", "sim", "--store", f"sqlite:{path}")
        assert main(run) == 0
    capsys.readouterr()
    report = found(capsys, path, *device)
    demand = report["demand"]
    assert (demand["chains"], demand["prompts"]) == (2, 4)
    assert 0 < demand["waiting"] < 1
    assert demand["tool"] > 0.5
    assert demand["reusable"] > 0.4
    assert [answer["verdict"] for answer in report["answers"]] == ["no", "cannot tell", "yes", "yes"]
    assert report["verdict"].startswith("Does not pay: prompts are short")


@akv.tool
async def read_log(ctx: akv.Context[None], service: str) -> str:
    """Read a service's log, which takes as long as its name."""
    await ctx.sleep(len(service) / 2)
    return f"{service}: all is well. " * 40


def read(service: str) -> akv.chain.Turn:
    return akv.testing.call("read_log", service=service)


@pytest.mark.parametrize(
    ("steps", "mode"),
    [
        ([read("disk"), read("mailbox")], "prefix"),
        ([akv.testing.calls(read("disk"), read("mailbox")), read("net")], "bidirectional"),
    ],
)
def test_the_mode_that_is_advised_is_the_one_that_was_measured_to_gain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, steps: list[akv.chain.Turn], mode: str
) -> None:
    agent = akv.Agent("operator", instructions="Keep the services up. " * 440, tools=[read_log])
    script = [*steps, akv.testing.say("All is well.")]

    async def run(kv: akv.config.TransferMode, store: str) -> akv.Result[str]:
        async with akv.Runtime(akv.testing.sim(script), store=store, kv=akv.KVConfig(kv_transfer_mode=kv)) as rt:
            return await rt.run(agent, "How are they?")

    ahead = anyio.run(run, "bidirectional", "memory").kv
    for recorded in ("prefix", "auto"):
        path = tmp_path / f"{recorded}.db"
        without = anyio.run(run, recorded, f"sqlite:{path}").kv
        report = found(capsys, path)
        early, setting = report["demand"]["ahead"], report["settings"][0]
        assert early["certain"] * early["tokens"] == pytest.approx(ahead.totals.prefetched_used)
        gains = ahead.totals.prefetched_used > 0
        assert gains == (mode == "bidirectional")
        assert report["answers"][3]["verdict"] == ("yes" if gains else "no")
        # Without prefilling ahead, whether results stream cannot be seen.
        assert setting["value"] == ("auto" if recorded == "prefix" and not gains else mode)
        if recorded == "prefix":
            assert gains == (sum(ahead.ttft_after_tool) < 0.9 * sum(without.ttft_after_tool))


def test_conversations_tell_of_prefixes_but_not_of_waiting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]},
        {"role": "tool", "tool_call_id": "c", "content": "y" * 640, "latency_s": 2.5},
        {"role": "assistant", "content": "Done."},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"id": n, "system": "x" * 16_000, "turns": turns}) + "\n" for n in "abcd"))
    report = found(capsys, path)
    demand = report["demand"]
    assert demand["prompt_mean"] == pytest.approx(4000 + 80, abs=20)
    # All but the first prompt, and the results of the others are equal, too.
    assert demand["reusable"] == pytest.approx(7 / 8, abs=0.02)
    assert (demand["branches"], demand["tool"], demand["waiting"]) == (4, 2.5, None)
    assert [answer["verdict"] for answer in report["answers"]] == ["yes", "yes", "cannot tell", "cannot tell"]


def test_block_hashes_by_session_and_by_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = {"type": "s", "out": 10, "api_time": 2.0, "ttft": 1.0, "think_time": 3.0, "input_types": ["tool_result"]}
    requests = [{**asked, "t": 9.0 * n, "in": 6400 + 640 * n, "hash_ids": list(range(100 + 10 * n))} for n in range(4)]
    sessions = tmp_path / "sessions.json.gz"
    sessions.write_bytes(gzip.compress(json.dumps({"id": "s", "block_size": 64, "requests": requests}).encode()))
    report = found(capsys, sessions)
    assert report["demand"]["waiting"] == 4 / (4 * 5)
    assert report["demand"]["tool"] == 3.0
    assert report["demand"]["reusable"] == pytest.approx((100 + 110 + 120) / (100 + 110 + 120 + 130))
    assert report["demand"]["working_set"] == 130 * 64 + 10

    single = tmp_path / "requests.jsonl"
    lines = [{"timestamp": 0, "input_length": 1100, "output_length": 1, "hash_ids": [0, 1, 10 + n]} for n in range(5)]
    single.write_text("\n".join(map(json.dumps, lines)))
    report = found(capsys, single)
    assert (report["demand"]["branches"], report["demand"]["trunk"], report["demand"]["timed"]) == (5, 1024, False)


def test_the_terminal_gets_questions_reasons_verdict_and_settings(
    capsys: pytest.CaptureFixture[str], device: tuple[str, ...]
) -> None:
    assert main(("advise", str(RECORDED / "sweagent.jsonl"), *device)) == 0
    out = capsys.readouterr().out
    assert "1. Is the mean prompt over 3,000 tokens" in out
    assert "a token is taken for 4 characters" in out
    assert "   missing: a journal" in out
    assert "KVConfig.kv_transfer_mode" in out
    assert "% of the device, " in out


def empty_journal(path: Path) -> None:
    async def create() -> None:
        store = SQLiteStore(path)
        await store.open()
        await store.aclose()

    anyio.run(create)


def journal_of_another_version(path: Path) -> None:
    async def create() -> None:
        store = SQLiteStore(path)
        await store.open()
        await store.append("r", 0, {"type": "generation_asked", "when": 1})
        await store.append("r", 1, {"type": "generation_finished", "when": 2})
        await store.aclose()

    anyio.run(create)


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"{]"), "not JSON"),
        (lambda path: path.write_bytes(b'{"a": 1}'), "is no trace that is known"),
        (lambda path: path.write_bytes(b'{"id": "x", "turns": []}'), "no turn is the assistant's"),
        (lambda path: path.write_bytes(b'{"id": "x", "requests": [], "block_size": 4}'), "no finished generation"),
        (lambda path: path.write_bytes(b"SQLite format 3\0 and no more"), "t.db"),
        (foreign_database, "journal"),
        (empty_journal, "no finished generation"),
        (
            journal_of_another_version,
            "record 1 ('generation_finished') of run 'r' is not readable (KeyError: 'agent')",
        ),
    ],
)
def test_a_file_without_a_workload_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Any, message: str
) -> None:
    make(tmp_path / "t.db")
    one_line(capsys, ("advise", str(tmp_path / "t.db")), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "80GiB"), "--model and --memory go together"),
        (("--model", "nowhere"), "--model and --memory go together"),
        (("--model", "nowhere", "--memory", "80GiB"), "there is no file 'nowhere'"),
        (("--block-size", "0"), "--block-size 0 must be at least 1"),
        (("--overhead-bytes", "1GiB"), "--overhead-bytes is a part of --memory BYTES: give that, too, or leave it out"),
    ],
)
def test_a_wrong_device_is_one_line(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str) -> None:
    one_line(capsys, ("advise", str(RECORDED / "sweagent.jsonl"), *options), message)
