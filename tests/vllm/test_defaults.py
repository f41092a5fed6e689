"""What a user gets who sets nothing, and how it ends."""

from typing import Any

import anyio
import psutil
import pytest
from anyio.lowlevel import checkpoint

from agentkv.engines.base import GenerateRequest, PrefillRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.errors import EngineUnavailable

pytestmark = pytest.mark.vllm("bfloat16")


def is_tracker(process: psutil.Process) -> bool:
    return any("resource_tracker" in part for part in process.cmdline())


async def test_defaults_suit_a_small_machine(vllm_engine: VLLMEngine) -> None:
    info, config = vllm_engine.info, vllm_engine._llm().vllm_config
    assert (info.block_size, info.max_model_len) == (32, 8192)
    assert info.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2
    # 1 GiB, less the null block.
    assert info.pool_blocks == (1 << 30) // (info.kv_bytes_per_token * 32) - 1
    assert config.scheduler_config.max_num_batched_tokens == 512
    assert config.model_config.enforce_eager


async def test_answers_from_the_cache_come_sooner(vllm_engine: VLLMEngine) -> None:
    ids = list(range(1000, 2500))
    cold = await vllm_engine.prefill(PrefillRequest(request_id="cold", token_ids=ids))
    warm = await vllm_engine.prefill(PrefillRequest(request_id="warm", token_ids=ids))
    assert (cold.cached, warm.cached) == (0, 1472)
    assert warm.done_at - warm.sent_at < (cold.done_at - cold.sent_at) / 2


@pytest.mark.vllm("bfloat16", last=True)
async def test_closing_ends_requests_and_processes(vllm_engine: VLLMEngine, engines: Any) -> None:
    # multiprocessing keeps one process of its own, the resource tracker, as long as this one lives.
    started = [process for process in psutil.Process().children(recursive=True) if not is_tracker(process)]
    assert started
    running: set[str] = set()
    ended: list[str] = []

    async def run(name: str) -> None:
        request = GenerateRequest(request_id=name, token_ids=list(range(500, 540)), max_tokens=2000)
        try:
            async for _ in vllm_engine.generate(request):
                running.add(name)
        except EngineUnavailable as error:
            ended.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(run, "one")
        group.start_soon(run, "two")
        with anyio.fail_after(30):
            while running != {"one", "two"}:
                await checkpoint()
        await vllm_engine.aclose()
    assert sorted(ended) == [f"request '{name}': the vLLM engine was closed" for name in ("one", "two")]
    await vllm_engine.aclose()
    await engines.close()
    for call in (vllm_engine.stats(), vllm_engine.prefill(PrefillRequest(request_id="late", token_ids=[5]))):
        with pytest.raises(EngineUnavailable, match="the vLLM engine is closed"):
            await call
    with pytest.raises(EngineUnavailable, match="the vLLM engine is closed"):
        await anext(vllm_engine.generate(GenerateRequest(request_id="late", token_ids=[5], max_tokens=1)))
    with pytest.raises(EngineUnavailable, match="make a new one"):
        await vllm_engine.__aenter__()
    assert [process for process in started if process.is_running()] == []
