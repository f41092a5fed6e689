"""Work of a user's in a task of its own, so that whoever waits for it can leave it behind."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

__all__ = ("attended",)

T = TypeVar("T")

# Real seconds, also on a simulated clock: long enough for what a tool has to tidy up.
PATIENCE = 10.0
# Real seconds between the cancellations of what was left. At each await, as before, they could be all that the event
# loop does, and simulated time would stand still.
REMIND = 1.0
# An event loop does not keep tasks alive that nobody refers to.
_left: set[asyncio.Task[Any]] = set()


async def attended(work: Callable[[], Awaitable[T]], on_left: Callable[[], None]) -> T:
    """The value of ``work()``, awaited in a task of its own.

    When the caller is cancelled the work is, at each of its awaits, and is waited for. What has not ended after
    ``PATIENCE`` seconds is left to run on, cancelled every ``REMIND`` seconds, and ``on_left`` is called. The caller's
    cancellation goes on in any case, whatever the work makes of its own.
    """
    scope, within = anyio.CancelScope(), anyio.CancelScope()
    caller = asyncio.current_task()
    task = asyncio.create_task(_inside(scope, within, work), name=caller.get_name() if caller else None)
    task.add_done_callback(_ended)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        scope.cancel()
        try:
            with anyio.move_on_after(PATIENCE, shield=True):
                await asyncio.wait([task])
        finally:
            if not task.done():
                _left.add(task)
                _remind(task, within)
                on_left()
        raise
    return task.result()


def _ended(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    # An interrupt has its way through the event loop already, and is no news to be printed.
    _ = task.cancelled() or task.exception()


def _remind(task: asyncio.Task[Any], within: anyio.CancelScope) -> None:
    if not task.done():
        # Without a shield the cancellation of the scope around it comes through, at once and then again and again.
        within.shield = False
        within.shield = True
        asyncio.get_running_loop().call_later(REMIND, _remind, task, within)


async def _inside(scope: anyio.CancelScope, within: anyio.CancelScope, work: Callable[[], Awaitable[T]]) -> T:
    with scope, within:
        return await work()
    raise asyncio.CancelledError
