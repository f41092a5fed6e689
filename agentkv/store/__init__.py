"""Stores: the journal of runs, in memory or in a file."""

from agentkv.store.base import RunSummary, Store
from agentkv.store.explained import opened
from agentkv.store.memo_file import kept_memos
from agentkv.store.memory import MemoryStore
from agentkv.store.spec import open_store
from agentkv.store.sqlite import SQLiteStore

__all__ = ("MemoryStore", "RunSummary", "SQLiteStore", "Store", "kept_memos", "open_store", "opened")
