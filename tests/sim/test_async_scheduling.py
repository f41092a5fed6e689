"""A machine that plans each step while the one before it runs, as vLLM does on a GPU."""

from contextlib import aclosing

import anyio
import pytest

from agentkv.engines import GenerateRequest, PrefillRequest
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import EngineStartError, EngineUnavailable

STEP = 0.01


def engine(*, ahead: bool, delivery_s: float = 0.0, host_s: float = 0.0) -> SimEngine:
    """Every step takes ``STEP`` seconds, whatever is in it, and prompts ``host_s`` to be launched."""
    return SimEngine(
        lambda request: range(7, 7 + request.max_tokens),
        cost=StepCost(base_s=STEP, prefill_token_s=0.0, prefill_host_s=host_s),
        async_scheduling=ahead,
        delivery_s=delivery_s,
    )


async def times(sim: SimEngine, name: str, at: float, tokens: int) -> list[float]:
    """When each token of a request that is sent at ``at`` is in hand."""
    await sim.clock.sleep(at)
    seen = []
    request = GenerateRequest(request_id=name, token_ids=[1, 2, 3], max_tokens=tokens)
    async with aclosing(sim.generate(request)) as deltas:
        async for delta in deltas:
            assert delta.at == sim.clock.now()
            seen += [sim.clock.now()] * len(delta.token_ids)
    return seen


@pytest.mark.parametrize(("ahead", "steps"), [(False, 2), (True, 3)])
async def test_a_request_waits_for_the_step_that_runs_and_for_the_one_already_planned(ahead: bool, steps: int) -> None:
    found: dict[str, list[float]] = {}

    async def ask(name: str, at: float, tokens: int) -> None:
        found[name] = await times(sim, name, at, tokens)

    async with engine(ahead=ahead) as sim, anyio.create_task_group() as group:
        group.start_soon(ask, "busy", 0.0, 20)
        # Just after the step that ends at 0.04 began.
        group.start_soon(ask, "late", 3 * STEP + 1e-6, 1)
    assert found["busy"] == pytest.approx([STEP * n for n in range(1, 21)])
    assert found["late"] == pytest.approx([STEP * (3 + steps)])
    sim.check_integrity()


async def test_on_an_idle_engine_a_step_is_a_step() -> None:
    async with engine(ahead=True) as sim:
        assert await times(sim, "only", 0.0, 3) == pytest.approx([STEP, 2 * STEP, 3 * STEP])
        assert (await sim.stats())["steps"] == 3


async def test_a_step_is_launched_while_the_one_before_runs_and_holds_up_its_tokens() -> None:
    found: dict[str, list[float]] = {}

    async def ask(name: str, at: float, tokens: int) -> None:
        found[name] = await times(sim, name, at, tokens)

    async with engine(ahead=True, host_s=2.5 * STEP) as sim, anyio.create_task_group() as group:
        group.start_soon(ask, "busy", 0.0, 7)
        group.start_soon(ask, "late", 3.7 * STEP, 1)
    # The first prompt is over when it is launched. The second is launched from 0.045 to 0.07: the step that runs
    # meanwhile is handed out only then, and its own is over, too.
    assert [moment / STEP for moment in found["busy"]] == pytest.approx([2.5, 3.5, 4.5, 7.0, 7.0, 8.0, 9.0])
    assert [moment / STEP for moment in found["late"]] == pytest.approx([7.0])
    sim.check_integrity()


async def test_without_asynchronous_scheduling_a_step_ends_when_it_has_been_launched() -> None:
    async with engine(ahead=False, host_s=2.5 * STEP) as sim:
        assert await times(sim, "only", 0.0, 3) == pytest.approx([2.5 * STEP, 3.5 * STEP, 4.5 * STEP])


async def test_tokens_are_delivered_later_and_nothing_else_is() -> None:
    async with engine(ahead=False, delivery_s=0.004) as sim:
        assert await times(sim, "first", 0.0, 3) == pytest.approx([STEP * n + 0.004 for n in (1, 2, 3)])
        receipt = await sim.prefill(PrefillRequest(request_id="ahead", token_ids=[1] * 64))
        assert receipt.done_at - receipt.sent_at == pytest.approx(STEP + 0.004)


async def test_an_engine_that_is_closed_between_two_steps_tells_its_callers() -> None:
    async with engine(ahead=True) as sim, anyio.create_task_group() as group:

        async def ask() -> None:
            with pytest.raises(EngineUnavailable, match="was closed"):
                await times(sim, "cut off", 0.0, 50)

        group.start_soon(ask)
        await sim.clock.sleep(2.5 * STEP)
        await sim.aclose()


def test_a_delivery_before_the_step_is_over_is_refused() -> None:
    with pytest.raises(EngineStartError, match=r"delivery_s=-0\.1 must be at least 0"):
        engine(ahead=False, delivery_s=-0.1)
