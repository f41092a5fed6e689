"""Which journal a text like ``"sqlite:runs.db"`` means."""

from agentkv.errors import NotSupported
from agentkv.store.base import Store
from agentkv.store.memory import MemoryStore
from agentkv.store.sqlite import SQLiteStore

__all__ = ("open_store",)


def open_store(spec: "str | Store") -> Store:
    """The store that ``spec`` names, still to be opened: ``"memory"``, ``"sqlite:PATH"``, or a store itself.

    Raises ``NotSupported`` for any other form.
    """
    if isinstance(spec, str):
        kind, _, path = spec.partition(":")
        if spec == "memory":
            return MemoryStore()
        if kind == "sqlite" and path:
            return SQLiteStore(path)
    elif isinstance(spec, Store):
        return spec
    raise NotSupported(f"store={spec!r} is no store; give 'memory', 'sqlite:PATH' or an object with the Store methods")
