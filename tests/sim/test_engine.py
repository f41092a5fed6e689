"""The simulated engine through its contract: counts, times, ends, failures."""

import json
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentkv.engines.base import Delta, Engine, GenerateRequest, PrefillRequest
from agentkv.engines.clock import VirtualClock
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost, find_machine
from agentkv.engines.sim_output import ScriptedOutput
from agentkv.engines.sim_preset import preset_json
from agentkv.errors import EngineError, EngineStartError, EngineUnavailable, ScriptError


def count_up(request: GenerateRequest) -> range:
    return range(5000, 5000 + request.max_tokens)


def ids(deltas: list[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def cached(deltas: list[Delta]) -> int:
    assert deltas[-1].usage is not None
    return deltas[-1].usage.cached


def prefill(name: str, count: int, start: int = 0) -> PrefillRequest:
    return PrefillRequest(request_id=name, token_ids=list(range(start, start + count)))


async def test_it_is_an_engine() -> None:
    async with SimEngine(count_up) as engine:
        assert isinstance(engine, Engine)
        assert engine.info.name == engine.info.model == "sim"
        assert engine.info.pool_blocks == 1456
        assert SimEngine(count_up).info.engine_id != engine.info.engine_id


@pytest.mark.parametrize(("prompt", "output", "resident"), [(100, 28, 96), (100, 29, 128), (96, 1, 96), (95, 1, 64)])
async def test_what_stays_resident(ask: Any, prompt: int, output: int, resident: int) -> None:
    async with SimEngine(count_up) as engine:
        first = list(range(prompt))
        await ask(engine, first, output)
        following = [*first, *range(5000, 5000 + output), *range(7000, 7100)]
        assert cached(await ask(engine, following)) == resident


@pytest.mark.parametrize(("prompt", "hit"), [(256, 224), (257, 256), (32, 0), (33, 32), (1, 0)])
async def test_a_repeated_prompt_leaves_something_to_compute(prompt: int, hit: int) -> None:
    async with SimEngine(count_up) as engine:
        assert (await engine.prefill(prefill("a", prompt))).cached == 0
        again = await engine.prefill(prefill("b", prompt))
        assert (again.prompt, again.cached, again.computed) == (prompt, hit, prompt - hit)


async def test_requests_of_one_instant_share_what_the_first_computes() -> None:
    receipts = {}
    async with SimEngine(count_up, max_num_batched_tokens=4096) as engine, anyio.create_task_group() as group:

        async def send(name: str) -> None:
            receipts[name] = await engine.prefill(prefill(name, 1210))

        group.start_soon(send, "a")
        group.start_soon(send, "b")
    assert (receipts["a"].cached, receipts["b"].cached) == (0, 1184)
    assert receipts["a"].done_at == receipts["b"].done_at


async def test_nothing_is_shared_under_another_salt(ask: Any) -> None:
    async with SimEngine(count_up) as engine:
        prompt = list(range(100))
        hits = [cached(await ask(engine, prompt, cache_salt=salt)) for salt in (None, "a", "b", "a", None)]
    assert hits == [0, 0, 0, 96, 96]


async def test_a_request_may_decline_reuse(ask: Any) -> None:
    async with SimEngine(count_up) as engine:
        prompt = list(range(100))
        hits = [cached(await ask(engine, prompt, reuse=reuse)) for reuse in (True, False, True)]
    assert hits == [0, 0, 96]


async def test_deltas_carry_the_time_of_their_step(ask: Any) -> None:
    cost = StepCost(base_s=1.0, prefill_token_s=0.1, decode_seq_s=0.5)
    async with SimEngine(count_up, cost=cost) as engine:
        deltas = await ask(engine, list(range(10)), 3)
    assert [(delta.token_ids, delta.at) for delta in deltas] == [((5000,), 2.0), ((5001,), 3.5), ((5002,), 5.0)]
    assert [delta.finish for delta in deltas] == [None, None, "length"]


async def test_a_prompt_longer_than_the_budget_takes_several_steps() -> None:
    cost = StepCost(base_s=1.0, prefill_token_s=0.0)
    async with SimEngine(count_up, cost=cost, max_num_batched_tokens=100) as engine:
        receipt = await engine.prefill(prefill("a", 250))
    assert (receipt.sent_at, receipt.done_at) == (0.0, 3.0)


@pytest.mark.parametrize(("preset", "prompt", "seconds"), [("cpu", 450, 1.0), ("h200", 3000, 0.1)], ids=["cpu", "h200"])
async def test_presets_prefill_at_the_measured_rate(preset: str, prompt: int, seconds: float) -> None:
    async with SimEngine(count_up, preset=preset) as engine:
        receipt = await engine.prefill(prefill("a", prompt))
    assert receipt.done_at == pytest.approx(seconds, rel=0.16)


@pytest.mark.parametrize(("preset", "batch", "step"), [("cpu", 1, 0.040), ("h200", 1, 0.005), ("h200", 37, 0.010)])
async def test_presets_decode_at_the_measured_rate(ask: Any, preset: str, batch: int, step: float) -> None:
    async with SimEngine(count_up, preset=preset) as engine, anyio.create_task_group() as group:
        for number in range(1, batch):
            group.start_soon(ask, engine, [number] * 5, 20)
        deltas = await ask(engine, [0] * 5, 20)
    assert deltas[-1].at - deltas[-2].at == pytest.approx(step, rel=0.01)


async def test_output_ends_at_a_stop_id_at_max_tokens_and_where_the_script_ends(ask: Any) -> None:
    async with SimEngine(lambda _: [1, 2, 3, 4]) as engine:
        stopped = await ask(engine, [9], 10, stop_token_ids=(7, 3))
        limited = await ask(engine, [9], 2)
        whole = await ask(engine, [9], 10)
    assert (ids(stopped), stopped[-1].finish) == ([1, 2, 3], "stop")
    assert (ids(limited), limited[-1].finish) == ([1, 2], "length")
    assert (ids(whole), whole[-1].finish) == ([1, 2, 3, 4], "stop")


async def test_output_ends_at_the_models_maximum(ask: Any) -> None:
    async with SimEngine(count_up, max_model_len=12) as engine:
        deltas = await ask(engine, list(range(10)), 100)
    assert (len(ids(deltas)), deltas[-1].finish) == (2, "length")


async def test_stream_interval_joins_tokens_after_the_first(ask: Any) -> None:
    async with SimEngine(count_up, stream_interval=4) as engine:
        deltas = await ask(engine, [1, 2], 11)
    assert [len(delta.token_ids) for delta in deltas] == [1, 4, 4, 2]
    assert ids(deltas) == list(range(5000, 5011))


async def test_a_request_that_the_pool_cannot_hold_is_refused(ask: Any) -> None:
    async with SimEngine(count_up, pool_blocks=4) as engine:
        assert engine.info.max_model_len == 128
        with pytest.raises(EngineError, match=r"prompt of 128 tokens; it must have 1 to 127 .* pool has 4 blocks"):
            await ask(engine, list(range(128)))
        with pytest.raises(EngineError, match="prompt of 0 tokens"):
            await engine.prefill(prefill("none", 0))
        assert len(ids(await ask(engine, list(range(127)), 50))) == 1


async def test_leaving_a_generation_aborts_it_and_keeps_its_blocks(ask: Any) -> None:
    async with SimEngine(count_up) as engine:
        prompt = list(range(100))
        async with aclosing(
            engine.generate(GenerateRequest(request_id="a", token_ids=prompt, max_tokens=50))
        ) as deltas:
            await anext(deltas)
        stats = await engine.stats()
        assert (stats["running"], stats["free_blocks"]) == (0, stats["pool_blocks"])
        engine.check_integrity()
        assert cached(await ask(engine, prompt)) == 96


async def test_a_cancelled_prefill_leaves_what_it_computed() -> None:
    async with SimEngine(count_up, max_num_batched_tokens=64) as engine:
        async with engine.clock.deadline(0.3) as scope:
            await engine.prefill(prefill("a", 1000))
        assert scope.cancelled_caught
        engine.check_integrity()
        stats = await engine.stats()
        assert (stats["running"], stats["waiting"]) == (0, 0)
        # Two steps of 64 tokens were under way after 0.3 s; a resume right behind finds them.
        assert (await engine.prefill(prefill("b", 1000))).cached == stats["computed_tokens"] == 128


async def test_a_waiting_request_can_be_aborted(ask: Any) -> None:
    async with SimEngine(count_up, max_num_seqs=1) as engine, anyio.create_task_group() as group:
        group.start_soon(ask, engine, [1], 50)
        await engine.clock.sleep(0.1)
        async with engine.clock.deadline(0.1) as scope:
            await engine.prefill(prefill("waits", 50))
        assert scope.cancelled_caught
        stats = await engine.stats()
        assert (stats["running"], stats["waiting"], stats["prompt_tokens"]) == (1, 0, 1)


async def test_an_idle_engine_does_nothing() -> None:
    async with SimEngine(count_up) as engine:
        await engine.prefill(prefill("a", 10))
        await engine.clock.sleep(1000)
        assert (await engine.stats())["steps"] == 1
        assert engine.clock.pending == 0


async def test_the_sums_add_up(ask: Any) -> None:
    async with SimEngine(count_up) as engine:
        for round_ in range(5):
            await ask(engine, list(range(100 + 50 * round_)), 7)
        stats = await engine.stats()
    assert stats["prompt_tokens"] == 1000
    assert stats["cached_tokens"] + stats["computed_tokens"] == 1000
    assert stats["generated_tokens"] == 35
    assert (stats["evictions"], stats["preemptions"]) == (0, 0)


async def test_a_short_pool_evicts(ask: Any) -> None:
    async with SimEngine(count_up, pool_blocks=8) as engine:
        for number in range(4):
            await ask(engine, [number] * 200, 2)
        assert (await engine.stats())["evictions"] > 0
        engine.check_integrity()


async def test_scripted_failure_comes_after_its_tokens() -> None:
    request = GenerateRequest(request_id="a", token_ids=[9], max_tokens=5)
    async with (
        SimEngine(lambda _: ScriptedOutput([1, 2], error="the card fell out")) as engine,
        aclosing(engine.generate(request)) as deltas,
    ):
        seen = [await anext(deltas), await anext(deltas)]
        with pytest.raises(EngineError, match="the card fell out"):
            await anext(deltas)
    assert ids(seen) == [1, 2]
    assert all(delta.finish is None for delta in seen)


async def test_a_script_that_gives_nothing_is_named(ask: Any) -> None:
    async with SimEngine(lambda _: []) as engine:
        with pytest.raises(ScriptError, match="no token for request 'a' \\('run1/plan/1'\\)"):
            await ask(engine, [1], request_id="a", tag="run1/plan/1")


async def test_closing_fails_what_runs_and_what_comes(ask: Any) -> None:
    engine = SimEngine(count_up)
    errors: list[EngineUnavailable] = []

    async def run() -> None:
        try:
            await ask(engine, [1], 1000, request_id="a")
        except EngineUnavailable as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        async with engine:
            group.start_soon(run)
            await engine.clock.sleep(1)
        assert engine.clock.pending == 0
    assert "was closed while it served request 'a'" in str(errors[0])
    await engine.aclose()
    with pytest.raises(EngineUnavailable, match="start a new one"):
        await ask(engine, [1])
    with pytest.raises(EngineUnavailable):
        await engine.prefill(prefill("b", 5))
    with pytest.raises(EngineUnavailable):
        await engine.__aenter__()
    engine.check_integrity()


async def test_a_fault_inside_reaches_the_callers(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimEngine(count_up) as engine:
        monkeypatch.setattr(engine._scheduler, "schedule", lambda: 1 / 0)
        with pytest.raises(EngineUnavailable, match="died of ZeroDivisionError"):
            await ask(engine, [1])


async def test_a_tool_may_ask_the_engine_while_it_is_busy(ask: Any) -> None:
    async with SimEngine(count_up) as engine:
        async with engine.clock.busy():
            await ask(engine, [1, 2, 3])
            await engine.prefill(prefill("a", 50))
        assert engine.clock.now() > 0


async def test_real_work_holds_the_engine_up(ask: Any) -> None:
    async with SimEngine(count_up) as engine, anyio.create_task_group() as group:
        group.start_soon(ask, engine, [1, 2, 3], 50)
        async with engine.clock.busy():
            await anyio.sleep(0.02)
            assert (await engine.stats())["steps"] == 0
    assert (await engine.stats())["steps"] == 50


async def test_engines_can_share_a_clock(ask: Any) -> None:
    clock = VirtualClock()
    async with SimEngine(count_up, clock=clock) as one, SimEngine(count_up, preset="h200", clock=clock) as two:
        await ask(one, [1])
        before = clock.now()
        assert (await ask(two, [1]))[0].at > before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "tpu"}, "no preset 'tpu'; it has cpu, h200"),
        ({"pool_blocks": 0}, "pool_blocks=0 must be a whole number of at least 1"),
        ({"pool_blocks": 10**15}, "is more than the simulator keeps books of: give at most 10000000"),
        ({"delivery_s": float("inf")}, "delivery_s=inf must be at least 0"),
        ({"block_size": "16"}, "block_size='16' must be a whole number"),
        ({"max_num_seqs": True}, "max_num_seqs=True must be a number"),
        ({"cost": 3}, "cost=3 must be a StepCost"),
        ({"delivery_s": -0.1}, "delivery_s=-0.1 must be at least 0"),
        ({"async_scheduling": 1}, "async_scheduling=1 must be True or False"),
        ({"blocks": 3}, "no option 'blocks'; it has cost, block_size"),
        ({"stream_interval": 0}, "stream_interval=0 must be at least 1"),
        ({"pool_blocks": 4, "max_model_len": 129}, "max_model_len=129 does not fit a pool of 4 blocks of 32 tokens"),
        ({"cost": StepCost(base_s=0.0, prefill_token_s=1.0)}, "a step that takes no time never ends"),
        ({"cost": StepCost(base_s=float("inf"), prefill_token_s=1.0)}, "base_s of 0 seconds or more, and no inf"),
        ({"cost": StepCost(base_s=0.1, prefill_token_s=-1.0)}, "must have prefill_token_s of 0 seconds or more"),
        ({"cost": StepCost(base_s=0.1, prefill_token_s=1.0, decode_seq_s=float("nan"))}, "must have decode_seq_s of 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        SimEngine(count_up, **options)


@pytest.mark.parametrize(
    ("name", "value"), [("block_size", 0), ("pool_blocks", 1.5), ("host_bandwidth", 0), ("async_scheduling", 2)]
)
def test_a_file_of_a_machine_that_cannot_be_is_refused(tmp_path: Path, name: str, value: float) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({**preset_json(find_machine("cpu")), name: value}), encoding="utf-8")
    with pytest.raises(EngineStartError, match=f"machine.json': {name}={value} must be"):
        SimEngine(count_up, preset=str(file))


def test_another_block_size_keeps_the_pools_tokens() -> None:
    info = SimEngine(count_up, block_size=16).info
    assert info.pool_blocks == 2912


async def _interleaved(ask: Any, abort: bool) -> list[Any]:
    timeline: list[Any] = []
    async with SimEngine(count_up, pool_blocks=60, max_num_batched_tokens=128, max_num_seqs=12) as engine:

        async def chain(number: int) -> None:
            prompt = [number % 5] * (20 + 13 * number)
            await engine.clock.sleep(number * 0.11)
            for turn in range(3):
                async with engine.clock.deadline(0.9 if abort and (number + turn) % 4 == 0 else None):
                    deltas = await ask(engine, prompt, 5 + number % 7, request_id=f"{number}.{turn}")
                    timeline.extend((number, turn, delta) for delta in deltas)
                engine.check_integrity()
                prompt = [*prompt, *range(5000, 5005), number]
                await engine.clock.sleep((number * 7) % 11 * 0.1)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(chain, number)
        timeline.append(await engine.stats())
    return timeline


@pytest.mark.parametrize("abort", [False, True])
async def test_equal_requests_give_equal_timelines(ask: Any, abort: bool) -> None:
    first, second = await _interleaved(ask, abort), await _interleaved(ask, abort)
    assert first == second
    assert first[-1]["evictions"] > 0
    assert first[-1]["free_blocks"] == 60


async def test_a_thousand_chains_take_seconds(ask: Any) -> None:
    started = time.perf_counter()
    async with SimEngine(count_up, preset="h200", stream_interval=16) as engine, anyio.create_task_group() as group:
        for number in range(1000):
            group.start_soon(ask, engine, [*range(1000), number], 32)
    assert time.perf_counter() - started < 10
    assert (await engine.stats())["generated_tokens"] == 32_000
