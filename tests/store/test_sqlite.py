"""What a journal in a file is for: it outlives its process, and processes share it."""

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from agentkv.errors import StoreError
from agentkv.store import SQLiteStore

EVENT = {"type": "x"}
APPENDER = Path(__file__).with_name("appender.py")


def appender(path: Path, prefix: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(APPENDER), str(path), prefix, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


async def test_a_journal_outlives_its_store(path: Path) -> None:
    for seq in range(3):
        async with aclosing(SQLiteStore(path)) as store:
            await store.open()
            await store.append("a", seq, {"type": "x", "n": seq})
            assert [event["n"] for event in await store.load("a")] == list(range(seq + 1))


async def test_only_the_owner_may_read(path: Path, store: SQLiteStore) -> None:
    await store.append("a", 0, EVENT)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["runs.db", "runs.db-shm", "runs.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here, home = SQLiteStore("here.db"), SQLiteStore("~/home.db")
    monkeypatch.chdir("/")
    for store in (here, home):
        asyncio.run(_open_and_close(store))
    assert {file.name for file in tmp_path.iterdir()} == {"here.db", "home.db"}


async def _open_and_close(store: SQLiteStore) -> None:
    async with aclosing(store):
        await store.open()


@pytest.mark.parametrize("after", [1, 40, 200])
async def test_what_was_acknowledged_survives_a_kill(path: Path, after: int) -> None:
    process = appender(path, "run", 100_000)
    assert process.stdout
    acknowledged: dict[str, int] = {}
    for _ in range(after):
        name, _, seq = process.stdout.readline().partition(" ")
        acknowledged[name] = int(seq)
    process.send_signal(signal.SIGKILL)
    for line in process.stdout:
        if complete := re.fullmatch(r"(\w+) (\d+)\n", line):
            acknowledged[complete[1]] = int(complete[2])
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        for name, last in acknowledged.items():
            events = await store.load(name)
            assert len(events) > last
            assert all(event == {"type": "x", "text": "å" * 500} for event in events)
            await store.append(name, len(events), EVENT)


async def test_processes_share_a_file_from_its_creation_on(path: Path) -> None:
    processes = [appender(path, f"p{number}-", 10) for number in range(4)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert [len(output.splitlines()) for output in outputs] == [40] * 4
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        assert {summary.run_id: summary.events for summary in await store.runs()} == {
            f"p{number}-{index}": 10 for number in range(4) for index in range(4)
        }


async def test_two_stores_of_one_run_see_each_other(path: Path, store: SQLiteStore) -> None:
    async with aclosing(SQLiteStore(path)) as other:
        await other.open()
        await store.append("a", 0, EVENT)
        with pytest.raises(StoreError, match=r"is in the journal already; .* is another process writing this run"):
            await other.append("a", 0, EVENT)
        await other.append("a", 1, EVENT)
        assert len(await store.load("a")) == 2
