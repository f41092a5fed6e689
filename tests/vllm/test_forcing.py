"""Given ids through a real vLLM: decoded one by one, beside requests that say what they like."""

import random
from contextlib import aclosing
from uuid import uuid4

import anyio
import pytest

from agentkv.engines.base import Delta, GenerateRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.errors import EngineError
from agentkv.kv import Directive

VOCABULARY = 49152
END = 2


def drawn(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=count)


async def ask(engine: VLLMEngine, prompt: list[int], tokens: int, **more: object) -> list[Delta]:
    request = GenerateRequest(request_id=uuid4().hex, token_ids=prompt, max_tokens=tokens, **more)  # type: ignore[arg-type]
    async with aclosing(engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


def said(deltas: list[Delta]) -> list[int]:
    return [i for delta in deltas for i in delta.token_ids]


@pytest.mark.vllm("leases")
async def test_forced_ids_come_out_exactly_beside_a_free_request(vllm_engine: VLLMEngine) -> None:
    # The end of a turn in the middle, and both ends of the vocabulary.
    forced = [(*drawn(n, 9), END, 0, VOCABULARY - 1, *drawn(9 + n, 4)) for n in range(2)]
    prompts = [drawn(20 + n, 70 + 30 * n) for n in range(3)]
    alone = said(await ask(vllm_engine, prompts[2], 16))
    found: dict[int, list[Delta]] = {}

    async def one(number: int, ids: tuple[int, ...] | None) -> None:
        found[number] = await ask(vllm_engine, prompts[number], 16, forced=ids, min_tokens=16)

    async with anyio.create_task_group() as group:
        for number, ids in enumerate([*forced, None]):
            group.start_soon(one, number, ids)
    assert [tuple(said(found[number])) for number in range(2)] == forced
    assert said(found[2]) == alone
    assert found[0][-1].finish == "length"
    # One step a token: nothing was handed over without being decoded.
    assert len(found[0]) == 16


@pytest.mark.vllm("leases")
async def test_what_was_forced_is_kv_like_any_other(vllm_engine: VLLMEngine) -> None:
    prompt, forced = drawn(1, 40), tuple(drawn(2, 60))
    directive = Directive(run=uuid4().hex, ttl=60.0)
    first = await ask(vllm_engine, prompt, 60, forced=forced, directive=directive)
    assert first[-1].grant is not None
    assert first[-1].grant.blocks == 99 // 32
    again = await ask(vllm_engine, [*prompt, *forced, 5], 1)
    assert again[-1].usage is not None
    assert again[-1].usage.cached == 96
    await vllm_engine.kv("release", {"tokens": [first[-1].grant.token]})


@pytest.mark.vllm("leases")
async def test_ids_outside_of_the_vocabulary_are_refused(vllm_engine: VLLMEngine) -> None:
    with pytest.raises(EngineError, match="must be 0 to 49151"):
        await ask(vllm_engine, [1, 2], 1, forced=(VOCABULARY,))
    assert vllm_engine.info.capabilities["forcing"] == "on"


@pytest.mark.vllm("float32")
async def test_an_engine_without_it_refuses(vllm_engine: VLLMEngine) -> None:
    with pytest.raises(EngineError, match="started with forcing=True"):
        await ask(vllm_engine, [1, 2], 1, forced=(7,))
    assert vllm_engine.info.capabilities["forcing"].startswith("off")
