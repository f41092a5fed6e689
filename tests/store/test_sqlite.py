"""What only the store in a file must do: survive, share, refuse, stay out of the loop's way."""

import asyncio
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentkv.errors import StoreError
from agentkv.store import SQLiteStore

EVENT = {"type": "x"}
APPENDER = Path(__file__).with_name("appender.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        yield store


def appender(path: Path, prefix: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(APPENDER), str(path), prefix, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's write lock, as another process would."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


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


@contextmanager
def held(store: SQLiteStore) -> Iterator[threading.Event]:
    """Hold the store's thread until the event is set or the block ends."""
    gate = threading.Event()
    assert store._thread
    store._thread.submit(gate.wait)
    try:
        yield gate
    finally:
        gate.set()


async def _settle() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_waiting_appends_share_a_transaction(store: SQLiteStore) -> None:
    statements: list[str] = []
    await store._on_thread(lambda file: file._connection.set_trace_callback(statements.append))
    async with anyio.create_task_group() as tasks:
        with held(store):
            for index in range(100):
                tasks.start_soon(store.append, f"r{index}", 0, EVENT)
            await _settle()
            assert statements == []
    assert statements.count("COMMIT") == 1
    assert len(await store.runs()) == 100


async def test_a_wrong_number_spoils_no_other_append_of_its_transaction(store: SQLiteStore) -> None:
    with held(store) as gate:
        appends = (store.append(name, seq, EVENT) for name, seq in (("a", 0), ("b", 1), ("a", 1), ("a", 1), ("b", 0)))
        waiting = asyncio.gather(*appends, return_exceptions=True)
        await _settle()
        gate.set()
        assert [type(result) for result in await waiting] == [
            type(None),
            StoreError,
            type(None),
            StoreError,
            type(None),
        ]
    assert {summary.run_id: summary.events for summary in await store.runs()} == {"a": 2, "b": 1}


async def test_the_queue_is_bounded_and_closing_finishes_it(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    with held(store) as gate:
        waiting = asyncio.gather(
            *(store.append(f"r{index}", 0, EVENT) for index in range(1100)), return_exceptions=True
        )
        await _settle()
        assert len(store._waiting) == 1024
        closing = asyncio.ensure_future(store.aclose())
        await _settle()
        gate.set()
        await closing
    results = await waiting
    assert sum(result is None for result in results) == 1024
    assert all("is not open" in str(result) for result in results if result is not None)
    await store.open()
    assert len(await store.runs()) == 1024
    await store.aclose()


async def test_a_cancelled_scope_waits_for_the_append_that_has_begun(store: SQLiteStore) -> None:
    order: list[str] = []
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await store.append("a", 0, EVENT)
            order.append("appended")
            await anyio.lowlevel.checkpoint()
            order.append("not reached")

    async with anyio.create_task_group() as tasks:
        with held(store):
            tasks.start_soon(run)
            await _settle()
            scope.cancel()
            await _settle()
            order.append("the loop goes on")
    assert order == ["the loop goes on", "appended"]
    assert await store.load("a") == [EVENT]


async def test_an_append_is_carried_out_though_its_task_is_cancelled(store: SQLiteStore) -> None:
    with held(store) as gate:
        task = asyncio.ensure_future(store.append("a", 0, EVENT))
        await _settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = asyncio.ensure_future(store.append("a", 1, EVENT))
        await _settle()
        gate.set()
        await following
    assert await store.load("a") == [EVENT, EVENT]


async def test_another_process_s_lock_is_waited_for_without_holding_up_the_loop(path: Path, store: SQLiteStore) -> None:
    with locked(path):
        waiting = asyncio.ensure_future(store.append("a", 0, EVENT))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
    await waiting
    assert await store.load("a") == [EVENT]


async def test_a_lock_that_stays_is_an_error_and_the_journal_goes_on_after_it(path: Path) -> None:
    async with aclosing(SQLiteStore(path, busy_timeout=0.05)) as store:
        await store.open()
        with locked(path), pytest.raises(StoreError, match="locked; another process holds it"):
            await store.append("a", 0, EVENT)
        await store.append("a", 0, EVENT)
        assert await store.load("a") == [EVENT]


async def test_opening_twice_at_once_opens_once(path: Path) -> None:
    async with aclosing(SQLiteStore(path)) as store:
        await asyncio.gather(*(store.open() for _ in range(5)))
        await store.append("a", 0, EVENT)
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("agentkv-store")]
        assert len(names) == 1
    await _until_gone("agentkv-store")


async def _until_gone(prefix: str) -> None:
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join, 5)
        assert not thread.is_alive()


def _text(path: Path) -> None:
    path.write_text("These are my notes.\n" * 100)


def _other_program(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE note (text)")


def _other_program_with_version(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("PRAGMA user_version = 1")


def _newer(path: Path) -> None:
    asyncio.run(_touch(path))
    with connected(path) as connection:
        connection.execute("PRAGMA user_version = 2")


async def _touch(path: Path) -> None:
    await _open_and_close(SQLiteStore(path))


async def _open_and_close(store: SQLiteStore) -> None:
    async with aclosing(store):
        await store.open()


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_text, "file is not a database; give the path of a journal or of a new file"),
        (_other_program, "is another program's database; give the path of a journal or of a new file"),
        (_other_program_with_version, "is another program's database"),
        (_newer, "has version 2, this agentkv reads version 1; install the newer agentkv"),
        (Path.mkdir, "check that its folder exists and is writable"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], Any], problem: str
) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=re.escape(problem)) as raised:
        asyncio.run(_touch(path))
    assert str(path) in str(raised.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    path.touch()
    asyncio.run(_touch(path))
    assert path.stat().st_size > 0


async def test_a_missing_folder_is_named_and_a_later_open_works(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "missing" / "runs.db")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"missing/runs\.db .* check that its folder exists"):
            await store.open()
        with pytest.raises(StoreError, match="not open"):
            await store.runs()
    (tmp_path / "missing").mkdir()
    await store.open()
    await store.append("a", 0, EVENT)
    await store.aclose()


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"type": 1}', '{"type": "x"'])
async def test_a_damaged_event_is_named(path: Path, store: SQLiteStore, body: str) -> None:
    await store.append("a", 0, EVENT)
    await store.append("a", 1, EVENT)
    with connected(path) as connection:
        connection.execute("UPDATE event SET body = ? WHERE seq = 1", (body,))
    for operation in (store.load("a"), store.runs()):
        with pytest.raises(StoreError, match="event 1 of run 'a' is damaged; restore the journal from a copy"):
            await operation


async def test_a_damaged_file_is_a_store_error(path: Path) -> None:
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        for seq in range(50):
            await store.append("a", seq, {"type": "x", "text": "y" * 500})
    _damage(path)
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        for operation in (store.load("a"), store.append("a", 50, EVENT)):
            with pytest.raises(StoreError, match="malformed; restore it from a copy"):
                await operation


def _damage(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
