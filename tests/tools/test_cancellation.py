"""Whose cancellation it is: the run's passes through, a tool's own is its error."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentkv.tools import Outcome, tool

Ask = Callable[..., Awaitable[Outcome]]
attended = import_module("agentkv.tools.attended")


@pytest.mark.parametrize("kind", ["async", "stream", "sync", "chunks"])
async def test_cancelling_the_run_passes_through(ask: Ask, kind: str) -> None:
    release, started = threading.Event(), threading.Event()

    async def coroutine() -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    async def stream() -> AsyncIterator[str]:
        started.set()
        await anyio.sleep_forever()
        yield ""

    def plain() -> str:
        started.set()
        release.wait()
        return ""

    def chunks() -> Iterator[str]:
        started.set()
        release.wait()
        yield ""

    functions: dict[str, Any] = {"async": coroutine, "stream": stream, "sync": plain, "chunks": chunks}
    f = tool(name="f", timeout=30)(functions[kind])
    returned: list[Outcome] = []

    async def run() -> None:
        returned.append(await ask(f))

    try:
        for cancel in (_cancel_scope, _cancel_task):
            started.clear()
            await cancel(run, started)
    finally:
        release.set()
    assert returned == []


async def _cancel_scope(run: Callable[[], Any], started: threading.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await _until(started)
        tasks.cancel_scope.cancel()


async def _cancel_task(run: Callable[[], Any], started: threading.Event) -> None:
    task = asyncio.ensure_future(run())
    await _until(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _until(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 5)


@pytest.mark.parametrize("ending", ["return", "raise"])
@pytest.mark.parametrize("cancel", [_cancel_scope, _cancel_task])
async def test_a_tool_cannot_swallow_the_run_s_cancellation(
    ask: Ask, cancel: Callable[..., Awaitable[None]], ending: str
) -> None:
    started = threading.Event()

    @tool(timeout=30)
    async def stubborn() -> str:
        started.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if ending == "raise":
                raise ConnectionError("closed") from None
        return "swallowed"

    returned: list[Outcome] = []

    async def run() -> None:
        returned.append(await ask(stubborn))

    await cancel(run, started)
    assert returned == []


@pytest.mark.parametrize("how", ["swallows", "shields", "yields"])
async def test_a_tool_that_does_not_end_is_left_to_run_on(ask: Ask, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended, "PATIENCE", 0.05)
    over, ended, heard = anyio.Event(), anyio.Event(), []

    async def swallows() -> str:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await anyio.sleep(0.01)
        ended.set()
        return "late"

    async def shields() -> str:
        with anyio.CancelScope(shield=True):
            await over.wait()
        ended.set()
        return "late"

    async def yields() -> AsyncIterator[str]:
        yield "early"
        await swallows()
        yield "late"

    functions: dict[str, Any] = {"swallows": swallows, "shields": shields, "yields": yields}
    stubborn = tool(name="stubborn", timeout=0.01)(functions[how])
    left: list[bool] = []
    outcome = await ask(stubborn, on_left=lambda: left.append(True), on_text=heard.append)
    why = "`stubborn` timed out after 0.01 s."
    told = Outcome("timeout", "early", True, why) if how == "yields" else Outcome("timeout", why, True)
    assert outcome == told
    assert left == [True]
    over.set()
    await ended.wait()
    await anyio.wait_all_tasks_blocked()
    assert heard == (["early"] if how == "yields" else [])


async def test_a_tool_that_was_left_is_cancelled_now_and_then_only(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended, "PATIENCE", 0.02)
    monkeypatch.setattr(attended, "REMIND", 0.05)
    over, cancelled = anyio.Event(), 0

    @tool(timeout=0.01)
    async def stubborn() -> str:
        nonlocal cancelled
        while not over.is_set():
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                cancelled += 1
        return ""

    await ask(stubborn)
    before = cancelled
    await anyio.sleep(0.2)
    over.set()
    assert before < cancelled <= before + 5


async def test_a_tool_that_was_left_ends_where_it_can_be_cancelled(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attended, "PATIENCE", 0.02)
    monkeypatch.setattr(attended, "REMIND", 0.02)
    over, ended = anyio.Event(), anyio.Event()

    @tool(timeout=0.01)
    async def slow() -> str:
        try:
            with anyio.CancelScope(shield=True):
                await over.wait()
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    await ask(slow)
    over.set()
    with anyio.fail_after(5):
        await ended.wait()


async def test_a_swallowed_cancellation_still_belongs_to_its_scope(ask: Ask) -> None:
    @tool(timeout=30)
    async def stubborn() -> str:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return "swallowed"
        return ""

    with anyio.CancelScope() as scope:
        await ask(stubborn)
        raise AssertionError("must be cancelled")
    assert scope.cancelled_caught


@pytest.mark.parametrize("native", [True, False])
async def test_a_cancellation_asked_for_beforehand_is_no_error_of_the_tool(ask: Ask, native: bool) -> None:
    ran: list[bool] = []

    @tool
    async def f() -> None:
        ran.append(True)
        await anyio.lowlevel.checkpoint()

    async def run() -> None:
        with anyio.CancelScope() as scope:
            if native:
                task = asyncio.current_task()
                assert task
                task.cancel()
            else:
                scope.cancel()
            await ask(f)
        assert not native
        assert scope.cancelled_caught

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    assert task.cancelled() == native
    assert native or task.exception() is None
    assert ran == []
