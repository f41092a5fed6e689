"""Simulated time: it moves only when nothing else can, and it moves in one order."""

import asyncio
import time
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from agentkv.engines.base import Clock
from agentkv.engines.clock import RealClock, VirtualClock
from agentkv.errors import EngineStartError


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_a_long_sleep_takes_no_real_time(clock: VirtualClock) -> None:
    started = time.perf_counter()
    await clock.sleep(86_400)
    assert clock.now() == 86_400
    assert time.perf_counter() - started < 1


async def test_sleepers_wake_in_order_of_time(clock: VirtualClock) -> None:
    woken: list[tuple[float, float]] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.now()))

    async with anyio.create_task_group() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.start_soon(sleeper, seconds)
    assert woken == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


async def test_timers_of_one_instant_go_off_one_by_one_in_order_of_creation(clock: VirtualClock) -> None:
    seen: list[str] = []

    async def sleeper(name: str) -> None:
        await clock.sleep(1)
        for part in "abc":
            seen.append(name + part)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for name in "12345678":
            group.start_soon(sleeper, name)
    assert seen == [name + part for name in "12345678" for part in "abc"]


async def test_time_stands_still_while_anything_is_runnable(clock: VirtualClock) -> None:
    times: list[float] = []

    async def worker() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            times.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5)
        group.start_soon(worker)
    assert set(times) == {0.0}
    assert clock.now() == 5


async def test_real_work_inside_busy_freezes_time(clock: VirtualClock) -> None:
    at_end: list[float] = []

    async def tool() -> None:
        async with clock.busy():
            await anyio.sleep(0.05)
            at_end.append(clock.now())

    async with anyio.create_task_group() as group:
        group.start_soon(tool)
        group.start_soon(clock.sleep, 5)
    assert at_end == [0.0]
    assert clock.now() == 5


async def test_real_work_outside_busy_does_not(clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5)
        await anyio.sleep(0.02)
        assert clock.now() == 5


async def test_a_thread_inside_busy_freezes_time(clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5)
        async with clock.busy():
            await anyio.to_thread.run_sync(time.sleep, 0.05)
            assert clock.now() == 0


async def test_a_tool_in_a_thread_can_sleep_in_simulated_time(clock: VirtualClock) -> None:
    def tool() -> float:
        anyio.from_thread.run(clock.sleep, 7)
        return clock.now()

    async with clock.busy():
        assert await anyio.to_thread.run_sync(tool) == 7


async def test_sleeping_inside_busy_lets_time_run(clock: VirtualClock) -> None:
    async with clock.busy():
        await clock.sleep(2)
        assert clock.now() == 2
        async with clock.busy():
            await clock.sleep(1)
    assert clock.now() == 3


async def test_two_sleepers_in_one_busy_body_do_not_outweigh_another_body(clock: VirtualClock) -> None:
    at_end: list[float] = []

    async def real_work() -> None:
        async with clock.busy():
            await anyio.sleep(0.05)
            at_end.append(clock.now())

    async with anyio.create_task_group() as outer:
        outer.start_soon(real_work)
        async with clock.busy(), anyio.create_task_group() as group:
            group.start_soon(clock.sleep, 1)
            group.start_soon(clock.sleep, 2)
    assert at_end == [0.0]
    assert clock.now() == 2


async def test_a_task_that_outlives_the_busy_body_it_was_started_in_is_not_busy(clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        async with clock.busy():
            group.start_soon(clock.sleep, 1)
        await clock.sleep(3)
    assert clock.now() == 3


async def test_a_cancelled_sleep_leaves_no_timer(clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        for seconds in range(1, 100):
            group.start_soon(clock.sleep, 1000 + seconds)
        await clock.sleep(1)
        assert clock.pending == 99
        group.cancel_scope.cancel()
    assert clock.pending == 0
    assert clock.now() == 1
    assert not clock._timers, "the heap keeps what was cancelled"


async def test_a_busy_body_that_is_cancelled_lets_time_go(clock: VirtualClock) -> None:
    with anyio.move_on_after(0.02):
        async with clock.busy():
            await anyio.sleep_forever()
    await clock.sleep(4)
    assert clock.now() == 4


@pytest.mark.parametrize(("seconds", "expected"), [(3.0, 3.0), (0.0, 0.0), (-1.0, 0.0)])
async def test_a_deadline_cancels_its_body(clock: VirtualClock, seconds: float, expected: float) -> None:
    async with clock.deadline(seconds) as scope:
        await clock.sleep(10)
    assert scope.cancelled_caught
    assert clock.now() == expected
    assert clock.pending == 0


@pytest.mark.parametrize("seconds", [3.0, None])
async def test_a_deadline_that_is_met_leaves_nothing(clock: VirtualClock, seconds: float | None) -> None:
    async with clock.deadline(seconds) as scope:
        await clock.sleep(1)
    assert not scope.cancelled_caught
    assert clock.pending == 0


async def test_a_deadline_holds_inside_a_deadline(clock: VirtualClock) -> None:
    async with clock.deadline(2) as outer, clock.deadline(5) as inner:
        await clock.sleep(10)
    assert outer.cancelled_caught
    assert not inner.cancelled_caught
    assert clock.now() == 2


async def test_an_idle_clock_lets_the_loop_sleep(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    await clock.sleep(1)
    calls = 0
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon

    def counted(*args: object, **kwargs: object) -> asyncio.Handle:
        nonlocal calls
        calls += 1
        return call_soon(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon", counted)
    await anyio.sleep(0.05)
    idle_calls = calls
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5)
        async with clock.busy():
            await anyio.sleep(0.05)
            held_calls = calls - idle_calls
    assert idle_calls < 10
    assert held_calls < 20


async def test_two_clocks_in_one_loop_both_run() -> None:
    first, second = VirtualClock(), VirtualClock()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(first.sleep, 10)
                group.start_soon(second.sleep, 20)
    assert (first.now(), second.now()) == (10, 20)


async def test_ten_thousand_timers(clock: VirtualClock) -> None:
    async with anyio.create_task_group() as group:
        for index in range(10_000):
            group.start_soon(clock.sleep, (index * 7919) % 10_000 + 1)
    assert clock.now() == 10_000


def test_a_clock_works_in_one_loop_after_another(clock: VirtualClock) -> None:
    asyncio.run(clock.sleep(1))
    asyncio.run(clock.sleep(1))
    assert clock.now() == 2


def test_it_needs_a_running_loop(clock: VirtualClock) -> None:
    with pytest.raises(EngineStartError, match="running asyncio event loop"):
        clock.call_at(1, lambda: None)


def test_it_needs_a_loop_that_shows_its_ready_queue(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherLoop:
        pass

    loop: Callable[[], OtherLoop] = OtherLoop
    monkeypatch.setattr(asyncio, "get_running_loop", loop)
    with pytest.raises(EngineStartError, match="'OtherLoop' is idle; run it on asyncio's own event loop"):
        clock.check_loop()


async def test_the_real_clock_runs_in_real_time() -> None:
    clock: Clock = RealClock()
    started = clock.now()
    async with clock.deadline(0.02) as scope, clock.busy():
        await clock.sleep(10)
    assert scope.cancelled_caught
    assert 0.02 <= clock.now() - started < 5
    async with clock.deadline(None) as scope:
        await clock.sleep(0)
    assert not scope.cancelled_caught


@pytest.mark.parametrize("limit", [None, float("inf")])
async def test_time_never_comes_to_the_end_of_a_sleep_for_ever(limit: float | None) -> None:
    clock = VirtualClock()

    async def sleep_for_ever() -> None:
        async with clock.deadline(limit):
            await clock.sleep(float("inf"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep_for_ever)
        await clock.sleep(5)
        await anyio.sleep(0.02)
        assert clock.now() == 5
        tasks.cancel_scope.cancel()


async def test_no_timer_stands_at_a_moment_that_is_no_number() -> None:
    clock, nan = VirtualClock(), float("nan")
    with pytest.raises(ValueError, match="NaN"):
        clock.call_at(nan, print)
    with pytest.raises(ValueError, match="NaN"):
        async with clock.deadline(nan):
            pass
    assert clock.pending == 0
