import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import AfterValidator, BaseModel

from agentkv.engines.clock import VirtualClock
from agentkv.errors import ToolError, ToolFailed, ToolRetry
from agentkv.tools import Context, Outcome, Tool, ToolCall, invoke, tool

Ask = Callable[..., Awaitable[Outcome]]


class Item(BaseModel):
    name: str
    count: int = 1


async def test_arguments_and_context_reach_an_async_tool(ask: Ask) -> None:
    @tool
    async def order(ctx: Context[str], items: list[Item], gift: bool = False) -> dict[str, Any]:
        return {"who": ctx.deps, "call": ctx.call_id, "items": items, "gift": gift}

    outcome = await ask(order, '{"items": [{"name": "å"}]}', deps="Ada")
    assert outcome == Outcome("ok", '{"who":"Ada","call":"call_0001","items":[{"name":"å","count":1}],"gift":false}')


async def test_positional_only_and_keyword_only_parameters(ask: Ask) -> None:
    @tool
    def f(ctx: Context[None], a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert await ask(f, '{"d": 9, "a": 1}') == Outcome("ok", "[1,2,3,9]")
    assert await ask(f, '{"a": 1, "b": 5, "c": 6}') == Outcome("ok", "[1,5,6,4]")


async def test_a_default_is_the_function_s_own_object(ask: Ask) -> None:
    marker = object()

    @tool
    async def f(x: Any = marker) -> bool:
        return x is marker

    assert await ask(f) == Outcome("ok", "true")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("{}", ["- items: Field required"]),
        ('{"items": [{"name": 1, "count": "2"}]}', ["- items.0.name: ", "- items.0.count: "]),
        ('{"items": [], "extra": 1, "a0": 2}', ["- extra: Extra", "- a0: Extra"]),
        ('{"items": ', ["- Invalid JSON"]),
        ("[1]", ["- Input should be an object"]),
    ],
)
async def test_wrong_arguments_are_explained_field_by_field(ask: Ask, arguments: str, lines: list[str]) -> None:
    @tool
    async def order(items: list[Item]) -> None:
        raise AssertionError("must not run")

    outcome = await ask(order, arguments)
    first, *rest = outcome.text.splitlines()
    assert (outcome.status, first) == ("invalid", "Invalid arguments for `order`:")
    assert len(rest) == len(lines)
    assert all(line.startswith(start) for line, start in zip(rest, lines, strict=True))
    assert "http" not in outcome.text
    assert await ask(order, arguments) == outcome


async def test_the_explanation_is_short_however_large_the_arguments(ask: Ask) -> None:
    @tool
    async def f(items: list[int]) -> None: ...

    huge = '"' + "x" * 100_000 + '"'
    for arguments in (
        f'{{"items": [{", ".join([huge] * 100)}]}}',
        f'{{"items": [], {huge}: 1}}',
        f'{{"items": {huge}}}',
    ):
        outcome = await ask(f, arguments)
        assert outcome.status == "invalid"
        assert len(outcome.text) < 2_000
    many = await ask(f, '{"items": [' + ",".join(["null"] * 30) + "]}")
    assert many.text.endswith("- and 20 more")


async def test_a_tool_s_own_validation_error_is_not_the_model_s_fault(ask: Ask) -> None:
    @tool
    async def f() -> None:
        Item.model_validate({})

    with pytest.raises(ToolError, match="tool 'f' raised ValidationError"):
        await ask(f)


async def test_validators_may_speak_to_the_model_or_break(ask: Ask) -> None:
    def check(value: int) -> int:
        if value == 0:
            raise ToolRetry("Not 0.")
        return 1 // (value - 1)

    @tool
    async def f(x: Annotated[int, AfterValidator(check)]) -> None: ...

    assert await ask(f, '{"x": 0}') == Outcome("retry", "Not 0.")
    with pytest.raises(ToolError, match="tool 'f' raised ZeroDivisionError"):
        await ask(f, '{"x": 1}')


def _raiser(error: BaseException, kind: str) -> Tool[Any, ..., Any]:
    async def coroutine() -> str:
        raise error

    async def stream() -> AsyncIterator[str]:
        yield "a"
        raise error

    def plain() -> str:
        raise error

    def chunks() -> Iterator[str]:
        yield "a"
        raise error

    functions: dict[str, Any] = {"async": coroutine, "stream": stream, "sync": plain, "chunks": chunks}
    made: Tool[Any, ..., Any] = tool(name="f")(functions[kind])
    return made


KINDS = pytest.mark.parametrize("kind", ["async", "stream", "sync", "chunks"])


@KINDS
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ToolRetry("Give a\ud800 date."), Outcome("retry", "Give a\ufffd date.")),
        (ToolRetry(), Outcome("retry", "`f` asks for another try.")),
        (ToolFailed("No such order."), Outcome("failed", "No such order.")),
        (ToolFailed(), Outcome("failed", "`f` failed.")),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ToolRetry("Again.")]), ToolFailed("x")]),
            Outcome("retry", "Again."),
        ),
    ],
    ids=repr,
)
async def test_two_exceptions_speak_to_the_model(ask: Ask, kind: str, error: Exception, outcome: Outcome) -> None:
    assert await ask(_raiser(error, kind)) == outcome


@KINDS
@pytest.mark.parametrize(
    "error",
    [
        KeyError("secret"),
        TimeoutError(),
        ExceptionGroup("g", [ToolRetry("x"), ValueError("y")]),
        BaseExceptionGroup("g", [asyncio.CancelledError()]),
    ],
    ids=repr,
)
async def test_any_other_exception_ends_the_run_and_names_the_tool(ask: Ask, kind: str, error: BaseException) -> None:
    with pytest.raises(
        ToolError, match=rf"^tool 'f' raised {type(error).__name__}.*raise ToolRetry or ToolFailed"
    ) as raised:
        await ask(_raiser(error, kind))
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("kind", ["async", "stream"])
async def test_a_cancellation_that_nobody_asked_for_is_the_tool_s_error(ask: Ask, kind: str) -> None:
    with pytest.raises(ToolError, match="tool 'f' raised CancelledError"):
        await ask(_raiser(asyncio.CancelledError(), kind))
    assert (await ask(_raiser(ToolRetry("x"), kind))).status == "retry"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("g", [KeyboardInterrupt()])], ids=repr)
def test_an_interrupt_is_nobody_s_outcome(ask: Ask, error: BaseException) -> None:
    async def main() -> None:
        await ask(_raiser(error, "async"))

    with pytest.raises(type(error)):
        asyncio.run(main())


@pytest.mark.parametrize(
    "value", [b"x", object(), float("nan"), {1: "a", "1": "b"}], ids=lambda value: type(value).__name__
)
async def test_a_result_without_json_form_is_the_programmer_s_mistake(ask: Ask, value: object) -> None:
    @tool
    async def f() -> object:
        return value

    with pytest.raises(
        ToolError, match=rf"^tool 'f' returned a {type(value).__name__} that the model cannot be given: "
    ):
        await ask(f)


async def test_streams_are_collected_whole(ask: Ask) -> None:
    @tool
    async def stream(n: int) -> AsyncIterator[str]:
        for i in range(n):
            yield f"{i} "

    @tool
    def chunks(n: int) -> Iterator[str]:
        for i in range(n):
            yield f"{i} "

    for each in (stream, chunks):
        assert await ask(each, '{"n": 3}') == Outcome("ok", "0 1 2 ")
        assert await ask(each, '{"n": 0}') == Outcome("ok", "")


async def test_a_stream_yields_text_only(ask: Ask) -> None:
    @tool
    async def stream() -> AsyncIterator[Any]:
        yield 1

    @tool
    def chunks() -> Iterator[Any]:
        yield 1

    for each in (stream, chunks):
        with pytest.raises(ToolError, match=f"^tool '{each.name}' yielded a int; a streaming tool yields str only"):
            await ask(each)


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
    assert await ask(drip) == Outcome("timeout", "`drip` timed out after 0.01 s.")
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

    @tool(timeout=0.02)
    def slow() -> None:
        release.wait()
        finished.set()

    limiter = anyio.CapacityLimiter(1)
    try:
        assert await ask(slow, limiter=limiter) == Outcome("timeout", "`slow` timed out after 0.02 s.", abandoned=True)
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


@KINDS
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
