"""A queue with one reader that outlives its writer: nothing has to be closed by whoever stops reading."""

from collections import deque
from typing import Generic, TypeVar

import anyio

from agentkv.errors import SetupError

__all__ = ("Feed",)

Item = TypeVar("Item")


class Feed(Generic[Item]):
    """Unbounded; ``put`` never waits. Iterating ends once it is closed and empty."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._closed = False
        self._waiting = False
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Add an item."""
        self._items.append(item)
        self._changed.set()

    def clear(self) -> None:
        """Throw away what nobody has taken yet."""
        self._items.clear()

    def close(self) -> None:
        """Let the reader come to an end."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> "Feed[Item]":
        return self

    async def __anext__(self) -> Item:
        """The next item; waits for it.

        Raises ``StopAsyncIteration`` when closed and empty, ``SetupError`` while somebody else waits for it.
        """
        if self._waiting:
            raise SetupError("these events are being read already; a run has one reader")
        self._waiting = True
        try:
            while not self._items:
                if self._closed:
                    raise StopAsyncIteration
                self._changed = anyio.Event()
                await self._changed.wait()
            return self._items.popleft()
        finally:
            self._waiting = False
