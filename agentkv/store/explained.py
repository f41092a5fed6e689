"""A journal whose every error is one of ours, and that several runtimes may have open at once."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from attrs import define

from agentkv.errors import StoreError
from agentkv.follow import Way
from agentkv.raised import shown
from agentkv.store.base import RunSummary, Store

__all__ = ("ExplainedStore", "opened")


@define
class _Use:
    """How many use a store now, and whether any of them has opened it: not all that try succeed."""

    users: int = 0
    is_open: bool = False


# By the store's id, which is its own for as long as somebody uses it.
_uses: dict[int, _Use] = {}


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator["ExplainedStore"]:
    """``store``, open while the body runs; of several who have it open at once the last one closes it.

    Raises ``StoreError`` where it cannot be opened or closed.
    """
    explained, use = ExplainedStore(store), _uses.setdefault(id(store), _Use())
    use.users += 1
    try:
        try:
            await explained.open()
        except BaseException as error:
            # What has begun is carried out, though whoever asked for it is cancelled.
            use.is_open |= not isinstance(error, StoreError)
            raise
        use.is_open = True
        yield explained
    finally:
        use.users -= 1
        if not use.users:
            del _uses[id(store)]
            if use.is_open:
                await explained.aclose()


class ExplainedStore:
    """``store``, whatever it is; what it raises that is no error of ours is a ``StoreError``.

    Stores are a contract that others implement, over networks and databases: a run must end in order, and give back
    what it holds in the engine, whichever way its journal fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self) -> None:
        """See ``Store``."""
        with self._explained("open()"):
            await self._store.open()

    async def append(self, run_id: str, seq: int, event: Mapping[str, Any]) -> None:
        """See ``Store``."""
        with self._explained(f"append() of event {seq} of run {run_id!r}"):
            await self._store.append(run_id, seq, event)

    async def load(self, run_id: str) -> list[dict[str, Any]]:
        """See ``Store``."""
        with self._explained(f"load() of run {run_id!r}"):
            return await self._store.load(run_id)

    async def runs(self) -> list[RunSummary]:
        """See ``Store``."""
        with self._explained("runs()"):
            return await self._store.runs()

    async def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """See ``Store``."""
        with self._explained("count()"):
            await self._store.count(owner, graph, ways)

    async def counts(self, owner: str, graph: str) -> dict[Way, int]:
        """See ``Store``."""
        with self._explained("counts()"):
            return await self._store.counts(owner, graph)

    async def aclose(self) -> None:
        """See ``Store``."""
        with self._explained("aclose()"):
            await self._store.aclose()

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            name = type(self._store).__name__
            problem = f"{name}.{what} raised {shown(error)}"
            raise StoreError(f"the journal cannot be used: {problem}; check what it is kept in") from error
