"""The journal of runs."""

from agentkv.store.base import RunSummary, Store
from agentkv.store.memory import MemoryStore
from agentkv.store.spec import open_store

__all__ = ("MemoryStore", "RunSummary", "Store", "open_store")
