"""Files that are no journal, or no longer."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import StoreError
from agentkv.store import SQLiteStore

EVENT = {"type": "x"}


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
    async with aclosing(SQLiteStore(path)) as store:
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


async def test_a_file_whose_damage_is_no_text_is_a_store_error(path: Path) -> None:
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
    _damage_schema(path)
    with pytest.raises(StoreError, match="malformed; restore it from a copy"):
        await SQLiteStore(path).open()


def _damage_schema(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE event", b"CREATE \xba\xbaBLE event"))


def _damage(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))


async def test_a_journal_from_before_ways_were_counted_takes_them(path: Path) -> None:
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        await store.append("a", 0, EVENT)
    with connected(path) as connection:
        connection.execute("DROP TABLE way")
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        await store.count("", "graph", {("a", "b"): 1})
        assert await store.counts("", "graph") == {("a", "b"): 1}
        assert await store.load("a") == [EVENT]


@pytest.mark.parametrize("times", [-2, 2**60, 0.5, 1e300, float("inf"), "many", b"\xff"])
async def test_a_damaged_count_is_a_store_error(path: Path, times: object) -> None:
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        await store.count("", "graph", {("a", "b"): 1})
        await store.count("", "other", {("a", "b"): 1})
    with connected(path) as connection:
        connection.execute("UPDATE way SET times = ? WHERE graph = 'graph'", (times,))
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        with pytest.raises(StoreError, match=r"damaged count of ways from 'a' to 'b'.*delete what its table"):
            await store.counts("", "graph")
        assert await store.counts("", "other") == {("a", "b"): 1}
