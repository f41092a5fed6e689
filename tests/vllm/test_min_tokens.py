"""Output of a set length on a real engine, and where its time went."""

from contextlib import aclosing

import pytest

from agentkv.engines.base import Delta, GenerateRequest
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("float32")


async def ask(engine: VLLMEngine, name: str, **more: object) -> list[Delta]:
    request = GenerateRequest(request_id=name, token_ids=list(range(300, 340)), max_tokens=8, **more)  # type: ignore[arg-type]
    async with aclosing(engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


async def test_a_stop_id_ends_nothing_before_min_tokens(vllm_engine: VLLMEngine) -> None:
    first = (await ask(vllm_engine, "min/free"))[0].token_ids[0]
    stopped = (await ask(vllm_engine, "min/stopped", stop_token_ids=(first,)))[-1].usage
    forced = (await ask(vllm_engine, "min/forced", stop_token_ids=(first,), min_tokens=8))[-1].usage
    assert stopped is not None
    assert forced is not None
    assert (stopped.generated, forced.generated) == (1, 8)


async def test_usage_tells_queue_from_prefill(vllm_engine: VLLMEngine) -> None:
    began = vllm_engine.clock.now()
    deltas = await ask(vllm_engine, "min/times", min_tokens=8)
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.queue_s is not None
    assert usage.prefill_s is not None
    assert usage.queue_s >= 0
    assert 0 < usage.queue_s + usage.prefill_s <= deltas[0].at - began
