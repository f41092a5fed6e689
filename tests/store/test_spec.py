from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import NotSupported, StoreError
from agentkv.store import MemoryStore, SQLiteStore, Store, open_store


def test_the_forms_of_a_spec(tmp_path: Path) -> None:
    assert isinstance(open_store("memory"), MemoryStore)
    assert isinstance(open_store(f"sqlite:{tmp_path}/runs.db"), SQLiteStore)
    mine = MemoryStore()
    assert open_store(mine) is mine
    assert all(isinstance(store, Store) for store in (mine, SQLiteStore("x.db")))


@pytest.mark.parametrize("spec", ["", "memory:", "sqlite", "sqlite:", "runs.db", "postgres://x", None, 3, object()])
def test_other_forms_are_refused_with_the_list(spec: Any) -> None:
    with pytest.raises(NotSupported, match=r"give 'memory', 'sqlite:PATH' or an object"):
        open_store(spec)


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(StoreError, match="use 'memory'"):
        SQLiteStore(path)
