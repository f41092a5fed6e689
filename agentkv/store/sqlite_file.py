"""The SQLite file of a journal, used from one thread."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from agentkv.bounds import is_whole
from agentkv.errors import StoreError
from agentkv.follow import Way
from agentkv.store.event import check_seq

__all__ = ("Row", "SQLiteFile")

_VERSION = 1
_APPLICATION = 0x614B5631  # marks the file as a journal, so that no other program's file is written to

_SCHEMA = (
    "CREATE TABLE event (run_id TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run_id, seq))",
    "CREATE INDEX first_event ON event (run_id) WHERE seq = 0",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
# Journals that were made before there was this table get it when they are opened; those who read them do without.
_COUNTS = """
CREATE TABLE IF NOT EXISTS way (owner TEXT NOT NULL, graph TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL,
    times INTEGER NOT NULL, PRIMARY KEY (owner, graph, source, target)) WITHOUT ROWID
"""
_COUNT = """
INSERT INTO way VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, graph, source, target) DO UPDATE SET times = times + excluded.times
"""
# No graph was run more often; a count that may pass what SQLite takes for a whole number is no count.
_MOST_TIMES = 2**53
_RUNS = """
SELECT first.run_id, last.seq + 1, first.body, last.body FROM event AS first
JOIN event AS last ON last.run_id = first.run_id
    AND last.seq = (SELECT max(seq) FROM event WHERE run_id = first.run_id)
WHERE first.seq = 0 ORDER BY first.rowid
"""
# One statement, so that all is as of one moment: another process may be creating the file.
_IDENTITY = """
SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
    (SELECT count(*) FROM sqlite_master)
"""
_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "give the path of a journal or of a new file",
    sqlite3.SQLITE_CORRUPT: "restore it from a copy",
    sqlite3.SQLITE_BUSY: "another process holds it; stop that one or try again",
    sqlite3.SQLITE_READONLY: "make it and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "check that its folder exists and is writable",
    sqlite3.SQLITE_FULL: "free some space on its disk",
}


@frozen
class Row:
    """One event to be written; ``body`` is its text."""

    run_id: str
    seq: int
    body: str


class SQLiteFile:
    """A connection in write-ahead mode: readers and other processes go on while one writes.

    A committed transaction survives the death of the process; the death of the machine may take the last
    ones with it (``synchronous=NORMAL``), never the file. Raises ``StoreError`` for whatever goes wrong.
    """

    def __init__(self, path: Path, busy_timeout: float) -> None:
        """Open or create ``path``; wait up to ``busy_timeout`` seconds for other processes, here and later."""
        self._path = path
        self._busy_timeout = busy_timeout
        with self._explained():
            # only a new file is opened here: closing a second descriptor would drop this process's locks on it
            with suppress(FileExistsError):
                path.touch(mode=0o600, exist_ok=False)
            self._connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
        try:
            with self._explained():
                self._prepare()
        except StoreError:
            self._connection.close()
            raise

    def append(self, rows: Sequence[Row]) -> list[StoreError | None]:
        """Write ``rows`` in one transaction; a row whose number is wrong is left out and gets its error."""
        with self._explained(), self._transaction():
            return [self._append(row) for row in rows]

    def load(self, run_id: str) -> list[str]:
        """The texts of a run's events in order; none for an unknown run."""
        with self._explained():
            found = self._connection.execute("SELECT body FROM event WHERE run_id = ? ORDER BY seq", (run_id,))
            return [body for (body,) in found]

    def runs(self) -> list[tuple[str, int, str, str]]:
        """For each run its id, its number of events, and the texts of the first and the last."""
        with self._explained():
            return self._connection.execute(_RUNS).fetchall()

    def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """Add to the counts of ``ways``, in one transaction."""
        rows = [(owner, graph, *way, times) for way, times in ways.items()]
        with self._explained(), self._transaction():
            self._connection.executemany(_COUNT, rows)

    def counts(self, owner: str, graph: str) -> dict[Way, int]:
        """The counts of a tenant's graph."""
        query = "SELECT source, target, times FROM way WHERE owner = ? AND graph = ?"
        with self._explained():
            found = self._connection.execute(query, (owner, graph)).fetchall()
        for source, target, times in found:
            if not (
                is_whole(times, 0) and times <= _MOST_TIMES and isinstance(source, str) and isinstance(target, str)
            ):
                raise StoreError(
                    f"the journal {self._path} has a damaged count of ways from {source!r} to {target!r}: {times!r}; "
                    "restore it from a copy, or delete what its table 'way' holds: runs are counted anew"
                )
        return {(source, target): times for source, target, times in found}

    def close(self) -> None:
        """Close the connection; the last one folds the write-ahead log into the file."""
        self._connection.close()

    def _append(self, row: Row) -> StoreError | None:
        newest = self._connection.execute("SELECT max(seq) FROM event WHERE run_id = ?", (row.run_id,)).fetchone()[0]
        try:
            check_seq(row.run_id, 0 if newest is None else newest + 1, row.seq)
        except StoreError as error:
            return error
        self._connection.execute("INSERT INTO event VALUES (?, ?, ?)", (row.run_id, row.seq, row.body))
        return None

    def _prepare(self) -> None:
        self._is_new()  # before anything is changed, so that a foreign file stays as it is
        self._write_ahead()
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            if self._is_new():
                for statement in _SCHEMA:
                    self._connection.execute(statement)
            self._connection.execute(_COUNTS)

    def _write_ahead(self) -> None:
        # SQLite does not wait for other processes here, although it does everywhere else
        give_up = time.monotonic() + self._busy_timeout
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
            else:
                return
            time.sleep(0.005)

    def _is_new(self) -> bool:
        """Whether the file is empty. Raises ``StoreError`` when it is neither that nor a journal we can read."""
        application, version, tables = self._connection.execute(_IDENTITY).fetchone()
        if (application, version, tables) == (0, 0, 0):
            return True
        if application != _APPLICATION:
            raise StoreError(f"{self._path} is another program's database; give the path of a journal or of a new file")
        if version != _VERSION:
            raise StoreError(
                f"the journal {self._path} has version {version}, this agentkv reads version {_VERSION}; "
                "install the newer agentkv or give another path"
            )
        return False

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            remedy = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "check the file and its disk")
            raise StoreError(f"the journal {self._path} cannot be used: {error}; {remedy}") from error
        except UnicodeDecodeError as error:
            # What SQLite would say of a damaged file may quote its bytes.
            raise StoreError(f"the journal {self._path} cannot be used: malformed; restore it from a copy") from error
        except OSError as error:
            remedy = "check that its folder exists and is writable"
            raise StoreError(f"the journal {self._path} cannot be used: {error.strerror}; {remedy}") from error
