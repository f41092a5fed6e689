"""Output of a set length, and where a request's time in the engine went."""

from typing import Any

import anyio
import pytest

from agentkv.engines.base import Delta, GenerateRequest, Usage
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import EngineError, ScriptError

STOP = 7


def always_stop(request: GenerateRequest) -> list[int]:
    return [STOP] * request.max_tokens


def usage(deltas: list[Delta]) -> Usage:
    assert deltas[-1].usage is not None
    return deltas[-1].usage


@pytest.mark.parametrize(("least", "generated"), [(0, 1), (1, 1), (3, 3), (8, 8)])
async def test_a_stop_id_ends_nothing_before_min_tokens(ask: Any, least: int, generated: int) -> None:
    async with SimEngine(always_stop) as engine:
        deltas = await ask(engine, list(range(10)), 8, min_tokens=least, stop_token_ids=(STOP,))
    assert usage(deltas).generated == generated


async def test_a_script_that_is_too_short_is_an_error(ask: Any) -> None:
    async with SimEngine(lambda _: [1, 2]) as engine:
        with pytest.raises(ScriptError, match=r"gives 2 tokens for request 'x'.*asks for 3"):
            await ask(engine, [1], 4, min_tokens=3, request_id="x")


def test_more_than_max_tokens_cannot_be_asked_for() -> None:
    with pytest.raises(EngineError, match="'x' has min_tokens=3, above max_tokens=2"):
        GenerateRequest(request_id="x", token_ids=[1], max_tokens=2, min_tokens=3)


async def test_usage_tells_queue_from_prefill(ask: Any) -> None:
    cost = StepCost(base_s=1.0, prefill_token_s=0.0)
    async with SimEngine(always_stop, cost=cost, max_num_batched_tokens=64, max_num_seqs=1) as engine:
        found: list[Usage] = []

        async def one() -> None:
            found.append(usage(await ask(engine, list(range(128)), 2)))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
    # Two steps of prefill and one of decode; the second waits for all three, and then finds three blocks of four.
    assert [(u.queue_s, u.prefill_s) for u in found] == [(0.0, 2.0), (3.0, 1.0)]
