"""Stores: the journal of runs, in memory or in a file."""

from agentkv.store.base import RunSummary, Store
from agentkv.store.memory import MemoryStore
from agentkv.store.spec import open_store
from agentkv.store.sqlite import SQLiteStore

__all__ = ("MemoryStore", "RunSummary", "SQLiteStore", "Store", "open_store")
