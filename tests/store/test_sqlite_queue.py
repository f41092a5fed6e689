"""The one thread behind the store: batches, bounds, cancellation, locks."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import anyio
import pytest

from agentkv.errors import StoreError
from agentkv.store import SQLiteStore, opened

EVENT = {"type": "x"}


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


async def test_a_cancelled_scope_waits_for_room_in_the_queue_too(store: SQLiteStore) -> None:
    scope = anyio.CancelScope()

    async def last() -> None:
        with scope:
            await store.append("last", 0, EVENT)

    async with anyio.create_task_group() as tasks:
        with held(store):
            for index in range(1024):
                tasks.start_soon(store.append, f"r{index}", 0, EVENT)
            await _settle()
            tasks.start_soon(last)
            await _settle()
            scope.cancel()
            await _settle()
    assert await store.load("last") == [EVENT]


async def test_a_cancelled_close_still_closes(store: SQLiteStore) -> None:
    scope = anyio.CancelScope()
    closed: list[bool] = []

    async def close() -> None:
        with scope:
            try:
                await store.aclose()
            finally:
                closed.append(store._file is None)

    async with anyio.create_task_group() as tasks:
        with held(store):
            tasks.start_soon(close)
            await _settle()
            scope.cancel()
            await _settle()
    assert closed == [True]


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


async def test_one_that_is_opened_again_while_it_is_closed_is_open_behind_that(store: SQLiteStore) -> None:
    with held(store) as gate:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(store.aclose())
            await asyncio.sleep(0)
            opening = tasks.create_task(store.open())
            await asyncio.wait([opening], timeout=0.1)
            assert not opening.done()
            gate.set()
    await store.append("a", 0, EVENT)
    assert await store.load("a") == [EVENT]


async def test_one_whose_opening_is_cancelled_is_closed(path: Path) -> None:
    store = SQLiteStore(path)

    async def use() -> None:
        async with opened(store):
            pass

    task = asyncio.create_task(use())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until_gone("agentkv-store")


async def _until_gone(prefix: str) -> None:
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join, 5)
        assert not thread.is_alive()
