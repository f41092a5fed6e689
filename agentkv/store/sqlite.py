"""A journal in a SQLite file."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import anyio
from attrs import field, frozen

from agentkv.errors import StoreError
from agentkv.follow import Way
from agentkv.store.base import RunSummary
from agentkv.store.event import check_names, decode_event, encode_event, summary, unknown_run
from agentkv.store.sqlite_file import Row, SQLiteFile

__all__ = ("SQLiteStore",)

T = TypeVar("T")

_MOST_WAITING = 1024


@frozen(eq=False)
class _Append:
    row: Row
    done: "Future[None]" = field(factory=Future)


class SQLiteStore:
    """Events in the file ``path`` (created with mode 0600), which several processes may share.

    One thread of the store's own does all the work. Appends that wait for it are written in one transaction,
    so many runs together cost little more than one; at most 1,024 wait there, further callers wait in turn.
    ``busy_timeout`` is how many seconds to wait for another process.
    """

    def __init__(self, path: str | PathLike[str], *, busy_timeout: float = 10.0) -> None:
        if str(path) in ("", ":memory:"):
            raise StoreError(f"{str(path)!r} is not the path of a file; for a journal in memory use 'memory'")
        self._path = Path(path).expanduser().absolute()
        self._busy_timeout = busy_timeout
        self._thread: ThreadPoolExecutor | None = None
        self._opening: Future[None] = Future()
        self._closing: Future[None] | None = None
        self._room = anyio.Semaphore(_MOST_WAITING)
        # the two below belong to the thread; appends reach it through the deque
        self._file: SQLiteFile | None = None
        self._waiting: deque[_Append] = deque()

    async def open(self) -> None:
        """See ``Store``. Raises ``StoreError`` for a file that is no journal, or one of a newer version."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentkv-store")
            self._room = anyio.Semaphore(_MOST_WAITING)
            self._opening = self._thread.submit(self._open_file, self._closing)
        opening, thread = self._opening, self._thread
        try:
            await _finished(opening)
        except StoreError:
            thread.shutdown(wait=False)
            if self._thread is thread:
                self._thread = None
            raise

    async def append(self, run_id: str, seq: int, event: Mapping[str, Any]) -> None:
        """See ``Store``."""
        self._opened()
        append = _Append(Row(run_id, seq, encode_event(run_id, seq, event)))
        with anyio.CancelScope(shield=True):
            async with self._room:
                thread = self._opened()
                self._waiting.append(append)
                thread.submit(self._write_waiting)
                await _finished(append.done)

    async def load(self, run_id: str) -> list[dict[str, Any]]:
        """See ``Store``."""
        return await self._on_thread(lambda file: _load(file, run_id))

    async def runs(self) -> list[RunSummary]:
        """See ``Store``."""
        return await self._on_thread(lambda file: [summary(*row) for row in file.runs()])

    async def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """See ``Store``."""
        check_names(owner, graph, *(name for way in ways for name in way))
        await self._on_thread(lambda file: file.count(owner, graph, ways))

    async def counts(self, owner: str, graph: str) -> dict[Way, int]:
        """See ``Store``."""
        return await self._on_thread(lambda file: file.counts(owner, graph))

    async def aclose(self) -> None:
        """See ``Store``."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = self._closing = thread.submit(self._close_file)
            thread.shutdown(wait=False)
            await _finished(closing)

    def _opened(self) -> ThreadPoolExecutor:
        if self._thread is None:
            raise StoreError(f"the journal {self._path} is not open; await open() first")
        return self._thread

    async def _on_thread(self, work: Callable[[SQLiteFile], T]) -> T:
        return await _finished(self._opened().submit(lambda: work(self._opened_file())))

    def _open_file(self, closing: "Future[None] | None") -> None:
        if closing is not None:
            # The thread before this one would close the new file in the place of its own.
            wait([closing])
        self._file = SQLiteFile(self._path, self._busy_timeout)

    def _opened_file(self) -> SQLiteFile:
        if self._file is None:
            raise StoreError(f"the journal {self._path} is not open; await open() first")
        return self._file

    def _write_waiting(self) -> None:
        batch: list[_Append] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        if not batch:  # an earlier call took this one's append along
            return
        try:
            problems = self._opened_file().append([append.row for append in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller must hear of it
            for append in batch:
                append.done.set_exception(error)
            return
        for append, problem in zip(batch, problems, strict=True):
            if problem is None:
                append.done.set_result(None)
            else:
                append.done.set_exception(problem)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _load(file: SQLiteFile, run_id: str) -> list[dict[str, Any]]:
    texts = file.load(run_id)
    if not texts:
        raise unknown_run(run_id)
    return [decode_event(run_id, seq, text) for seq, text in enumerate(texts)]


async def _finished(future: "Future[T]") -> T:
    """The future's result; a cancellation meanwhile leaves the work alone, and a scope's waits for its end."""
    waiting = asyncio.wrap_future(future)
    with anyio.CancelScope(shield=True):
        await asyncio.wait([waiting])
    return waiting.result()
