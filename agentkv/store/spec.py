"""Stores by name: ``memory`` and ``sqlite:PATH``."""

from agentkv.errors import StoreError
from agentkv.store.base import Store
from agentkv.store.memory import MemoryStore

__all__ = ("open_store",)


def open_store(spec: str | Store) -> Store:
    """The store that ``spec`` names, not opened yet; a store is returned as it is. Raises ``StoreError``."""
    if not isinstance(spec, str):
        return spec
    kind, _, path = spec.partition(":")
    if spec == "memory":
        return MemoryStore()
    if kind == "sqlite" and path:
        from agentkv.store.sqlite import SQLiteStore

        return SQLiteStore(path)
    raise StoreError(f"store {spec!r} has none of the known forms: 'memory' or 'sqlite:PATH'")
