from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agentkv.store import MemoryStore, SQLiteStore, Store


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Make an empty store, still to be opened; the test is run once for each kind."""
    paths = (tmp_path / f"{number}.db" for number in range(1_000_000))
    return MemoryStore if request.param == "memory" else lambda: SQLiteStore(next(paths))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be made."""
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    """An open, empty journal at ``path``."""
    async with aclosing(SQLiteStore(path)) as store:
        await store.open()
        yield store
