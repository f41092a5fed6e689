"""The engine contract, kept by a real vLLM: blocks of 32 tokens, float32, 128 usable blocks."""

import json
import random
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psutil
import pytest
from anyio.lowlevel import checkpoint
from tokenizers import Tokenizer

from agentkv.engines.base import Delta, Engine, GenerateRequest, PrefillRequest, Sampling, Usage
from agentkv.engines.vllm import VLLMEngine
from agentkv.errors import EngineError, EngineUnavailable

pytestmark = pytest.mark.vllm("float32")

BLOCK = 32
IM_END = 2
VOCABULARY = range(100, 40_000)
NUMBERS = count()


def fresh(prefix: str = "r") -> str:
    return f"{prefix}{next(NUMBERS)}"


def tokens(number: int) -> list[int]:
    return random.Random(number).choices(VOCABULARY, k=number)


def wanted(ids: list[int], *, salt: str | None = None, max_tokens: int = 1, **more: object) -> GenerateRequest:
    return GenerateRequest(request_id=fresh(), token_ids=ids, max_tokens=max_tokens, cache_salt=salt, **more)


async def ask(engine: Engine, request: GenerateRequest) -> tuple[list[Delta], list[int], Usage]:
    deltas = [delta async for delta in engine.generate(request)]
    usage = deltas[-1].usage
    assert usage is not None
    return deltas, [token for delta in deltas for token in delta.token_ids], usage


async def cached(engine: Engine, ids: list[int], salt: str | None) -> int:
    return (await ask(engine, wanted(ids, salt=salt)))[2].cached


async def has_work(engine: VLLMEngine) -> bool:
    """What vLLM's own process says: is any request in its scheduler, or still to be cleared from its workers?"""
    return bool(await engine._llm().engine_core.call_utility_async("has_work"))


async def becomes_idle(engine: VLLMEngine) -> None:
    """Returns within two steps of an abort; the requests aborted here would run for half a minute."""
    with anyio.fail_after(5):
        while await has_work(engine):
            await checkpoint()


@pytest.fixture(scope="module")
def tokenizer(demo_model_path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo_model_path / "tokenizer.json"))


def chat(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids


async def test_info_is_that_of_the_running_engine(vllm_engine: VLLMEngine) -> None:
    info = vllm_engine.info
    assert isinstance(vllm_engine, Engine)
    assert (info.block_size, info.pool_blocks, info.max_model_len) == (BLOCK, 128, 4000)
    # 30 layers, 3 KV heads of 64 values, keys and values, 4 bytes each.
    assert info.kv_bytes_per_token == 2 * 30 * 3 * 64 * 4
    assert (Path(info.model_path) / "tokenizer.json").is_file()
    assert info.capabilities["prefix_caching"] == "on"
    assert info.capabilities["leases"].startswith("off: ")


async def test_model_answers_and_its_end_token_is_returned_last(vllm_engine: VLLMEngine, tokenizer: Tokenizer) -> None:
    request = wanted(chat(tokenizer, "What is the capital of France?"), max_tokens=40, stop_token_ids=(IM_END,))
    deltas, ids, usage = await ask(vllm_engine, request)
    assert "Paris" in tokenizer.decode(ids)
    assert ids[-1] == IM_END
    assert IM_END not in ids[:-1]
    assert [delta.finish for delta in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert usage.generated == len(ids)


async def test_any_stop_id_ends_the_generation_and_is_returned(vllm_engine: VLLMEngine) -> None:
    prompt = tokens(60)
    _, free, _ = await ask(vllm_engine, wanted(prompt, max_tokens=12))
    stop = free[5]
    deltas, ids, _ = await ask(vllm_engine, wanted(prompt, max_tokens=12, stop_token_ids=(stop, 99)))
    assert ids == free[: free.index(stop) + 1]
    assert deltas[-1].finish == "stop"


async def test_max_tokens_ends_the_generation(vllm_engine: VLLMEngine) -> None:
    deltas, ids, usage = await ask(vllm_engine, wanted(tokens(50), salt=fresh("salt"), max_tokens=7))
    assert deltas[-1].finish == "length"
    assert (usage.prompt, usage.cached, usage.computed, usage.generated) == (50, 0, 50, 7)
    assert len(ids) == 7


async def test_deltas_arrive_one_by_one_on_the_engines_clock(vllm_engine: VLLMEngine) -> None:
    before = vllm_engine.clock.now()
    deltas, _, _ = await ask(vllm_engine, wanted(tokens(33), max_tokens=6))
    times = [delta.at for delta in deltas]
    assert len(deltas) == 6
    assert times == sorted(times)
    assert before < times[0] < times[-1] <= vllm_engine.clock.now()


@pytest.mark.parametrize(("generated", "resident"), [(28, 96), (29, 128)])
async def test_last_generated_token_has_no_kv(vllm_engine: VLLMEngine, generated: int, resident: int) -> None:
    salt, prompt = fresh("salt"), tokens(100)
    # Random prompts may make the model end early; a length of its own choosing would test nothing.
    _, ids, _ = await ask(vllm_engine, wanted(prompt, salt=salt, max_tokens=generated))
    assert len(ids) == generated
    assert (100 + generated - 1) // BLOCK * BLOCK == resident
    assert await cached(vllm_engine, prompt + ids + tokens(64), salt) == resident


@pytest.mark.parametrize(("asked", "hit"), [(256, 224), (257, 256), (300, 256)])
async def test_prefill_leaves_whole_blocks_and_a_request_computes_at_least_one_token(
    vllm_engine: VLLMEngine, asked: int, hit: int
) -> None:
    salt, ids = fresh("salt"), tokens(300)
    receipt = await vllm_engine.prefill(PrefillRequest(request_id=fresh(), token_ids=ids[:256], cache_salt=salt))
    assert (receipt.prompt, receipt.cached, receipt.computed) == (256, 0, 256)
    assert receipt.sent_at < receipt.done_at
    assert await cached(vllm_engine, ids[:asked], salt) == hit


async def test_prefill_of_what_is_there_says_so(vllm_engine: VLLMEngine) -> None:
    salt, ids = fresh("salt"), tokens(320)
    await vllm_engine.prefill(PrefillRequest(request_id=fresh(), token_ids=ids[:160], cache_salt=salt))
    receipt = await vllm_engine.prefill(PrefillRequest(request_id=fresh(), token_ids=ids, cache_salt=salt))
    assert (receipt.cached, receipt.computed) == (160, 160)


async def test_kv_is_shared_only_under_an_equal_salt(vllm_engine: VLLMEngine) -> None:
    ids, salt = tokens(200), fresh("salt")
    assert await cached(vllm_engine, ids, salt) == 0
    assert await cached(vllm_engine, ids, fresh("salt")) == 0
    assert await cached(vllm_engine, ids, None) == 0
    assert await cached(vllm_engine, ids, salt) == 192


async def test_without_reuse_nothing_cached_is_read(vllm_engine: VLLMEngine) -> None:
    ids, salt = tokens(200), fresh("salt")
    await ask(vllm_engine, wanted(ids, salt=salt))
    assert (await ask(vllm_engine, wanted(ids, salt=salt, reuse=False)))[2].cached == 0
    assert await cached(vllm_engine, ids, salt) == 192


async def test_leaving_a_generation_early_ends_it_in_the_engine(vllm_engine: VLLMEngine) -> None:
    async with aclosing(vllm_engine.generate(wanted(tokens(40), max_tokens=1000))) as deltas:
        async for _ in deltas:
            assert (await vllm_engine.stats())["running"] == 1
            assert await has_work(vllm_engine)
            break
    stats = await vllm_engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)
    await becomes_idle(vllm_engine)


async def test_cancelling_a_generation_ends_it_in_the_engine(vllm_engine: VLLMEngine) -> None:
    seen = 0
    with anyio.CancelScope() as scope:
        async for _ in vllm_engine.generate(wanted(tokens(41), max_tokens=1000)):
            seen += 1
            scope.cancel()
    assert scope.cancelled_caught
    assert seen == 1
    await becomes_idle(vllm_engine)


async def test_request_behind_a_cancelled_prefill_finds_what_was_computed(vllm_engine: VLLMEngine) -> None:
    salt, ids = fresh("salt"), tokens(2040)
    before = await vllm_engine.stats()
    async with anyio.create_task_group() as group:
        group.start_soon(vllm_engine.prefill, PrefillRequest(request_id=fresh(), token_ids=ids, cache_salt=salt))
        await checkpoint()
        # Calls are answered between steps: by the second answer one or two steps of 512 tokens are done.
        assert await has_work(vllm_engine)
        assert await has_work(vllm_engine)
        group.cancel_scope.cancel()
    _, _, usage = await ask(vllm_engine, wanted(ids, salt=salt))
    # The step that runs when the abort arrives is not interrupted either.
    assert 512 <= usage.cached <= 3 * 512
    assert usage.cached % BLOCK == 0
    unanswered = (await vllm_engine.stats())["unanswered"]
    assert unanswered["requests"] == before["unanswered"]["requests"] + 1
    assert unanswered["prompt_tokens"] == before["unanswered"]["prompt_tokens"] + 2040


async def test_counters_agree_with_vllms_own(vllm_engine: VLLMEngine) -> None:
    salt, before = fresh("salt"), await vllm_engine.stats()
    for length in (100, 150, 150):
        await ask(vllm_engine, wanted(tokens(150)[:length], salt=salt))
    after = await vllm_engine.stats()
    grown = {name: after[name] - before[name] for name in ("prompt_tokens", "cached_tokens", "computed_tokens")}
    assert grown == {"prompt_tokens": 400, "cached_tokens": 96 + 128, "computed_tokens": 400 - 96 - 128}
    engine = {source: value - before["engine"][source] for source, value in after["engine"].items()}
    assert engine["local_compute"] == grown["computed_tokens"]
    assert engine["local_cache_hit"] == grown["cached_tokens"]
    json.dumps(after)


async def test_constrained_output_is_what_the_tag_says(vllm_engine: VLLMEngine, tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    content = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}
    tag = {"type": "tag", "begin": "<call>", "content": content, "end": "</call>"}
    constraint = json.dumps({"type": "structural_tag", "format": tag})
    prompt = chat(tokenizer, "Plan a trip to Rome.")
    request = wanted(prompt, max_tokens=60, constraint=constraint, stop_token_ids=(IM_END,))
    deltas, ids, _ = await ask(vllm_engine, request)
    assert deltas[-1].finish == "stop"
    text = tokenizer.decode(ids)
    call = json.loads(text.removeprefix("<call>").removesuffix("</call>"))
    assert call["city"] in {"Paris", "Rome"}
    assert 1 <= call["days"] <= 9


async def test_a_constraint_that_is_none_is_refused(vllm_engine: VLLMEngine) -> None:
    with pytest.raises(EngineError, match=r"^request 'r\d+' \(run-1 plan\): .+$"):
        await ask(vllm_engine, wanted(tokens(20), constraint='{"type": "structural_tag"}', tag="run-1 plan"))
    await becomes_idle(vllm_engine)


async def test_a_prompt_that_is_too_long_is_refused_by_name_and_number(vllm_engine: VLLMEngine) -> None:
    with pytest.raises(EngineError, match=r"^request 'r\d+': .*4000.*$"):
        await ask(vllm_engine, wanted(tokens(4050)))
    with pytest.raises(EngineError, match="4000"):
        await vllm_engine.prefill(PrefillRequest(request_id=fresh(), token_ids=tokens(4050)))
    _, ids, _ = await ask(vllm_engine, wanted(tokens(20)))
    assert len(ids) == 1


async def test_a_seed_repeats_a_sampled_generation(vllm_engine: VLLMEngine) -> None:
    sampling = Sampling(temperature=1.0, top_p=0.95, seed=7)
    prompt = tokens(30)
    _, first, _ = await ask(vllm_engine, wanted(prompt, max_tokens=12, sampling=sampling))
    _, second, _ = await ask(vllm_engine, wanted(prompt, max_tokens=12, sampling=sampling))
    _, greedy, _ = await ask(vllm_engine, wanted(prompt, max_tokens=12))
    assert first == second
    assert first != greedy


async def test_requests_run_side_by_side_with_the_output_they_have_alone(vllm_engine: VLLMEngine) -> None:
    prompts = [tokens(length) for length in (40, 70, 90)]
    alone = [(await ask(vllm_engine, wanted(prompt, salt=uuid4().hex, max_tokens=10)))[1] for prompt in prompts]
    together: dict[int, list[int]] = {}

    async def run(index: int) -> None:
        together[index] = (await ask(vllm_engine, wanted(prompts[index], salt=uuid4().hex, max_tokens=10)))[1]

    async with anyio.create_task_group() as group:
        for index in range(3):
            group.start_soon(run, index)
    assert [together[index] for index in range(3)] == alone


@pytest.mark.vllm("float32", last=True)
async def test_death_of_the_engine_process_ends_its_requests(vllm_engine: VLLMEngine, engines: Any) -> None:
    deltas = vllm_engine.generate(wanted(tokens(40), max_tokens=1000))
    await anext(deltas)
    # Of this process's children, the engine is the one with processes of its own or a great deal of memory.
    next(child for child in psutil.Process().children() if child.memory_info().rss > 1 << 28).kill()
    with pytest.raises(EngineUnavailable, match=r"^request 'r\d+': vLLM's engine process has died$"):
        async for _ in deltas:
            pass
    with pytest.raises(EngineUnavailable, match="died"):
        await vllm_engine.prefill(PrefillRequest(request_id=fresh(), token_ids=tokens(40)))
    await engines.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        await vllm_engine.stats()
