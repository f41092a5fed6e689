"""What the simulated model answers, and how the engine hands it over."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from agentkv.engines.base import Delta, FinishReason, GenerateRequest
from agentkv.errors import EngineError, ScriptError

__all__ = ("Mailbox", "Responder", "ScriptedOutput")


@frozen
class ScriptedOutput:
    """Token ids, how they end, and a message if the engine is to fail after them."""

    token_ids: Sequence[int]
    error: str | None = None
    finish: FinishReason = "stop"

    def cut(self, request: GenerateRequest, room: int) -> "ScriptedOutput":
        """What a real engine would give of it: up to the first stop id or ``room`` tokens."""
        if not self.token_ids:
            raise ScriptError(f"the script gives no token for request {request.request_id!r} ({request.tag!r})")
        if len(self.token_ids) < request.min_tokens:
            raise ScriptError(
                f"the script gives {len(self.token_ids)} tokens for request {request.request_id!r} ({request.tag!r}), "
                f"which asks for {request.min_tokens} at least"
            )
        for index, token in enumerate(self.token_ids[:room]):
            if token in request.stop_token_ids and index + 1 >= request.min_tokens:
                return ScriptedOutput(self.token_ids[: index + 1])
        if len(self.token_ids) > room:
            return ScriptedOutput(self.token_ids[:room], finish="length")
        return self if len(self.token_ids) < room else evolve(self, finish="length")


Responder = Callable[[GenerateRequest], Sequence[int] | ScriptedOutput]
"""Gives the output ids of a request. The engine cuts them at a stop id, ``max_tokens`` and its maximum length."""


class Mailbox:
    """What the engine has for one caller. ``sent`` counts the tokens put in so far."""

    __slots__ = ("_arrived", "_items", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self._items: deque[Delta | EngineError] = deque()
        self._arrived: asyncio.Future[None] | None = None

    def put(self, item: Delta | EngineError) -> None:
        """Add a delta, or the error that ends the request."""
        self._items.append(item)
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def get(self) -> Delta:
        """The next delta, in order. Raises the error that was put."""
        if not self._items:
            # A future, not an event: this is waited for once a token, and the virtual clock needs asyncio anyway.
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        item = self._items.popleft()
        if isinstance(item, EngineError):
            raise item
        return item
