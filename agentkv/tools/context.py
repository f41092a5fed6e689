"""What a tool may know about the run that calls it."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from attrs import field, frozen

__all__ = ("Context",)

DepsT_co = TypeVar("DepsT_co", covariant=True)


@frozen
class Context(Generic[DepsT_co]):
    """First parameter of a tool that wants it; never part of the tool's schema.

    ``deps`` is what the caller of the run handed over (connections, settings, the user); it never enters a
    prompt, a journal or a repr. ``attempt`` counts the attempts at this call from 1. In a unit test
    ``Context(deps)`` is enough.
    """

    deps: DepsT_co = field(repr=False)
    run_id: str = field(default="", kw_only=True)
    tool: str = field(default="", kw_only=True)
    call_id: str = field(default="", kw_only=True)
    attempt: int = field(default=1, kw_only=True)
    _sleep: Callable[[float], Awaitable[None]] = field(default=anyio.sleep, kw_only=True, repr=False, eq=False)

    async def sleep(self, seconds: float) -> None:
        """Wait on the runtime's clock, which a simulated run makes instant.

        For ``async`` tools. A ``def`` tool runs in a thread and has no event loop to wait on: there
        ``time.sleep`` waits real seconds.
        """
        await self._sleep(seconds)
