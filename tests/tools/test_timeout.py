"""Deadlines, worker threads and clocks."""

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from agentkv.engines.clock import VirtualClock
from agentkv.errors import ToolError, ToolRetry
from agentkv.tools import Context, Outcome, ToolCall, invoke, tool

Ask = Callable[..., Awaitable[Outcome]]


async def test_timeout_stops_an_async_tool_and_runs_its_cleanup(ask: Ask) -> None:
    cleaned: list[str] = []

    @tool(timeout=0.01)
    async def slow() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("async")

    @tool(timeout=0.01)
    async def drip() -> AsyncIterator[str]:
        try:
            yield "first"
            await anyio.sleep_forever()
        finally:
            cleaned.append("stream")

    assert await ask(slow) == Outcome("timeout", "`slow` timed out after 0.01 s.")
    assert await ask(drip) == Outcome("timeout", "first", note="`drip` timed out after 0.01 s.")
    assert cleaned == ["async", "stream"]


@pytest.mark.parametrize("ending", ["return", "retry", "break"])
async def test_what_a_tool_does_after_its_deadline_is_discarded(ask: Ask, ending: str) -> None:
    @tool(timeout=0.01)
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if ending == "retry":
                raise ToolRetry("late") from None
            if ending == "break":
                raise ConnectionError("closed") from None
        return "late"

    assert await ask(stubborn) == Outcome("timeout", "`stubborn` timed out after 0.01 s.")


async def test_timeout_abandons_a_thread_which_runs_on(ask: Ask) -> None:
    release, finished = threading.Event(), threading.Event()

    @tool(timeout=0.5)
    def slow() -> None:
        release.wait()
        finished.set()

    limiter = anyio.CapacityLimiter(1)
    try:
        assert await ask(slow, limiter=limiter) == Outcome("timeout", "`slow` timed out after 0.5 s.", abandoned=True)
        assert limiter.borrowed_tokens == 0
        assert not finished.is_set()
    finally:
        release.set()
    assert await anyio.to_thread.run_sync(finished.wait, 5)


async def test_queueing_for_a_thread_counts_against_no_timeout(ask: Ask) -> None:
    @tool(timeout=5)
    def work() -> str:
        return "done"

    limiter = anyio.CapacityLimiter(1)
    holder = object()
    limiter.acquire_on_behalf_of_nowait(holder)
    clock = VirtualClock()
    outcomes: list[Outcome] = []

    async def queued() -> None:
        outcomes.append(await invoke(work, ToolCall("c", "work", "{}"), Context(None), clock, limiter=limiter))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queued)
        await clock.sleep(60)
        limiter.release_on_behalf_of(holder)
    assert outcomes == [Outcome("ok", "done")]


async def test_a_thousand_sync_tools_share_few_threads(ask: Ask) -> None:
    running, most, lock = 0, 0, threading.Lock()

    @tool
    def work(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0)
        with lock:
            running -= 1
        return n

    limiter = anyio.CapacityLimiter(3)
    outcomes: dict[int, Outcome] = {}

    async def one(n: int) -> None:
        outcomes[n] = await ask(work, f'{{"n": {n}}}', limiter=limiter)

    async with anyio.create_task_group() as tasks:
        for n in range(1000):
            tasks.start_soon(one, n)
    assert outcomes == {n: Outcome("ok", str(n)) for n in range(1000)}
    assert most <= 3


async def test_sync_tools_leave_the_loop_free_and_see_context_variables(ask: Ask) -> None:
    user = contextvars.ContextVar[str]("user")
    user.set("Ada")
    go = threading.Event()

    @tool
    def f() -> str:
        seen = user.get()
        user.set("changed")
        assert go.wait(5)
        return f"{seen} {threading.current_thread() is threading.main_thread()}"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_soon, go)
        assert await ask(f) == Outcome("ok", "Ada False")
    assert user.get() == "Ada"


async def _set_soon(event: threading.Event) -> None:
    event.set()


async def test_deadlines_are_on_the_clock_of_the_run() -> None:
    clock = VirtualClock()

    @tool(timeout=60)
    async def wait(ctx: Context[None], seconds: float) -> str:
        await ctx.sleep(seconds)
        return "waited"

    async def call(seconds: float) -> Outcome:
        context = Context(None, sleep=clock.sleep)
        return await invoke(wait, ToolCall("c", "wait", f'{{"seconds": {seconds}}}'), context, clock)

    assert await call(59) == Outcome("ok", "waited")
    assert clock.now() == 59
    assert await call(3600) == Outcome("timeout", "`wait` timed out after 60 s.")
    assert clock.now() == 119


async def test_a_simulated_clock_stands_still_while_a_tool_works() -> None:
    clock = VirtualClock()

    @tool(timeout=1)
    def work() -> str:
        time.sleep(0.02)
        return "done"

    seen: list[float] = []

    async def ticker() -> None:
        await clock.sleep(100)
        seen.append(clock.now())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticker)
        outcome = await invoke(work, ToolCall("c", "work", "{}"), Context(None), clock)
        assert seen == []
    assert outcome == Outcome("ok", "done")
    assert seen == [100]


async def test_a_stream_that_never_ends_stops_no_simulated_time_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[invoke.__module__], "MOST_AT_ONCE", 1000)
    given = 0

    @tool(timeout=5)
    async def endless(ctx: Context[None], patient: bool) -> AsyncIterator[str]:
        nonlocal given
        while given < 100_000:
            given += 1
            yield "x"
            if patient and not given % 500:
                await ctx.sleep(0.01)

    clock = VirtualClock()
    context = Context(None, sleep=clock.sleep)
    with pytest.raises(ToolError, match="tool 'endless' yielded more than 1,000 pieces while no time passed"):
        await invoke(endless, ToolCall("c", "endless", '{"patient": false}'), context, clock)
    assert given < 1100
    given = 0
    outcome = await invoke(endless, ToolCall("c", "endless", '{"patient": true}'), context, clock)
    assert (outcome.status, given) == ("ok", 100_000)
