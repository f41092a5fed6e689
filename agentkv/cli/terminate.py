"""Being told to stop: SIGTERM ends a command as an interrupt does, engines and all."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ("Terminated", "run_until_told")

T = TypeVar("T")


class Terminated(BaseException):
    """Raised when SIGTERM ended the work. No ``Exception``, as ``KeyboardInterrupt`` is none."""


def run_until_told(work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work`` in an event loop of its own; SIGTERM cancels it, and raises ``Terminated`` when it has ended.

    What a signal without a handler would kill on the spot (processes of an engine, runs that are not yet
    journalled as ended) is so closed in order.
    """
    return anyio.run(_watched, work)


async def _watched(work: Callable[[], Awaitable[T]]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        if task is not None:
            task.cancel()

    # Only the main thread hears signals, and Windows has no handlers of this sort.
    hears = os.name == "posix" and threading.current_thread() is threading.main_thread()
    if hears:
        loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        return await work()
    except asyncio.CancelledError:
        if told:
            raise Terminated from None
        raise
    finally:
        if hears:
            loop.remove_signal_handler(signal.SIGTERM)
