"""The machine's clock, and a simulated one that moves only when there is nothing left to do."""

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import ClassVar
from weakref import WeakKeyDictionary

import anyio

from agentkv.errors import EngineStartError

__all__ = ("RealClock", "Timer", "VirtualClock")


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of ``time.perf_counter``."""
        return time.perf_counter()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await anyio.sleep(seconds)

    @asynccontextmanager
    async def deadline(self, seconds: float | None) -> AsyncIterator[anyio.CancelScope]:
        """Cancel the body after ``seconds`` (None: never)."""
        with anyio.move_on_after(seconds) as scope:
            yield scope

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Do nothing: real time runs whether or not work is in progress."""
        yield


class Timer:
    """A call that a ``VirtualClock`` will make at ``when``; ``cancel()`` takes it back."""

    __slots__ = ("_clock", "callback", "order", "when")

    def __init__(self, clock: "VirtualClock", when: float, order: int, callback: Callable[[], object]) -> None:
        self._clock = clock
        self.when = when
        self.order = order
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: "Timer") -> bool:
        return (self.when, self.order) < (other.when, other.order)

    def cancel(self) -> None:
        """Take the call back; harmless once it was made."""
        if self.callback is not None:
            self.callback = None
            self._clock._forget_cancelled()


class VirtualClock:
    """Simulated seconds inside an ordinary asyncio event loop.

    Time moves only when the loop has nothing else to run and no ``busy()`` body is active; it then jumps to
    the next timer. Timers of equal time go off in the order of their creation, and everything that one wakes
    runs until it waits again before the next goes off, so equal programs have equal timelines.

    What the loop merely waits for does not hold time back: open sockets, worker threads and ``call_later``
    timers of other code must be awaited inside ``busy()`` if simulated time is to stand still for them. A
    ``busy()`` body must wait for simulated events through this clock or its engine only, never through
    another task's event, or both wait for ever.

    Raises ``EngineStartError`` on a loop that does not show its ready queue (uvloop, trio).
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[Timer] = []
        self._created = 0
        self._cancelled = 0
        self._active_holds: set[_Hold] = set()

    @property
    def pending(self) -> int:
        """How many timers are set."""
        return len(self._timers) - self._cancelled

    def check_loop(self) -> None:
        """Raise ``EngineStartError`` unless simulated time can run in the current event loop."""
        _Driver.current()

    def now(self) -> float:
        """Simulated seconds since the clock was made."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` in the event loop at ``when`` (a time gone by: as soon as the loop is quiet).

        Raises ``ValueError`` for NaN.
        """
        if math.isnan(when):
            # Timers of all others would be in no order beside it.
            raise ValueError("a moment must not be NaN")
        driver = _Driver.current()
        timer = Timer(self, max(when, self._now), self._created, callback)
        self._created += 1
        heapq.heappush(self._timers, timer)
        driver.arm(self)
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of simulated time. Raises ``ValueError`` for NaN, as asyncio does."""
        if math.isnan(seconds):
            raise ValueError("seconds must not be NaN")
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        if seconds == math.inf:
            # No timer: with nothing else to do, time would come to its end.
            with self.waiting():
                await anyio.sleep_forever()
        woken = anyio.Event()
        timer = self.call_at(self._now + seconds, woken.set)
        try:
            with self.waiting():
                await woken.wait()
        finally:
            timer.cancel()

    @asynccontextmanager
    async def deadline(self, seconds: float | None) -> AsyncIterator[anyio.CancelScope]:
        """Cancel the body after ``seconds`` of simulated time (None: never). Raises ``ValueError`` for NaN."""
        if seconds is not None and math.isnan(seconds):
            raise ValueError("seconds must not be NaN")
        with anyio.CancelScope() as scope:
            if seconds is not None and seconds <= 0:
                scope.cancel()
            # At the end of time there is no timer: with nothing else to do, time would come to its end.
            if seconds is None or seconds <= 0 or seconds == math.inf:
                yield scope
                return
            timer = self.call_at(self._now + seconds, scope.cancel)
            try:
                yield scope
            finally:
                timer.cancel()

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Stop simulated time while the body does real work; its own ``sleep`` lets time run on."""
        hold = _Hold(self, _innermost_hold.get())
        token = _innermost_hold.set(hold)
        hold.update()
        try:
            yield
        finally:
            _innermost_hold.reset(token)
            hold.open = False
            hold.update()

    def waiting(self) -> AbstractContextManager[None]:
        """Let time run although this task is inside ``busy()``: the body only waits for simulated events."""
        return _NOT_HELD if _innermost_hold.get() is None else self._released()

    @contextmanager
    def _released(self) -> Iterator[None]:
        mine = []
        hold = _innermost_hold.get()
        while hold is not None:
            if hold.clock is self:
                mine.append(hold)
            hold = hold.outer
        for each in mine:
            each.sleepers += 1
            each.update()
        try:
            yield
        finally:
            for each in mine:
                each.sleepers -= 1
                each.update()

    @property
    def _can_advance(self) -> bool:
        return not self._active_holds and self.pending > 0

    def _advance(self) -> None:
        while self._timers:
            timer = heapq.heappop(self._timers)
            if timer.callback is None:
                self._cancelled -= 1
                continue
            self._now = timer.when
            callback, timer.callback = timer.callback, None
            callback()
            return

    def _forget_cancelled(self) -> None:
        self._cancelled += 1
        # A heap cannot drop from its middle; rebuilding at half waste keeps cancelling at amortised O(log n).
        if self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0


class _Hold:
    """One ``busy()`` body. It stops its clock unless a task inside it waits for simulated time."""

    __slots__ = ("clock", "open", "outer", "sleepers")

    def __init__(self, clock: VirtualClock, outer: "_Hold | None") -> None:
        self.clock = clock
        self.outer = outer
        self.open = True
        self.sleepers = 0

    def update(self) -> None:
        holds = self.clock._active_holds
        if self.open and self.sleepers == 0:
            holds.add(self)
            return
        holds.discard(self)
        if self.clock._can_advance:
            _Driver.current().arm(self.clock)


_NOT_HELD = nullcontext()
_innermost_hold: ContextVar[_Hold | None] = ContextVar("agentkv_innermost_hold", default=None)


class _Driver:
    """Moves the clocks of one event loop.

    One for all of them: two that each waited for an empty ready queue would keep each other's filled.
    """

    _of_loop: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, _Driver]"] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        if not hasattr(loop, "_ready"):
            raise EngineStartError(
                f"the simulator cannot tell when an event loop of type {type(loop).__name__!r} is idle; "
                "run it on asyncio's own event loop"
            )
        # The queue, not the loop: a strong reference to the key would keep the entry alive for ever.
        self._ready = loop._ready
        self._clocks: dict[VirtualClock, None] = {}
        self._armed = False

    @classmethod
    def current(cls) -> "_Driver":
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise EngineStartError("the simulator needs a running asyncio event loop") from None
        driver = cls._of_loop.get(loop)
        if driver is None:
            driver = cls._of_loop[loop] = cls(loop)
        return driver

    def arm(self, clock: VirtualClock) -> None:
        self._clocks[clock] = None
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self._armed = False
        if not self._ready:
            self._advance_one()
        # A clock that is held or has no timers arms the driver itself when that changes, so idling costs nothing.
        for clock in list(self._clocks):
            if clock._can_advance:
                self.arm(clock)
                return
            del self._clocks[clock]

    def _advance_one(self) -> None:
        for clock in self._clocks:
            if clock._can_advance:
                # To the back, so that clocks take turns.
                del self._clocks[clock]
                self._clocks[clock] = None
                clock._advance()
                return
