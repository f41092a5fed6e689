"""Each example on vLLM and the demo model: prefilling ahead changes no token, and each prediction comes true."""

from collections.abc import Callable
from types import ModuleType
from uuid import uuid4

import pytest

import agentkv as akv
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("float32")

PARTS = ("resident", "prefilled", "new", "tail", "cold", "evicted", "diverged", "salted", "uncached")


async def run(engine: VLLMEngine, module: ModuleType, mode: akv.TransferMode) -> tuple[list[int], akv.RunReport]:
    """Every token of the conversation, and the report."""
    target = getattr(module, "graph", None) or module.agent
    kv = akv.KVConfig(kv_transfer_mode=mode)
    async with (
        akv.Runtime(engine) as rt,
        rt.start(target, module.prompt, kv=kv, cache_salt=uuid4().hex) as started,
    ):
        result = await started.result()
    [chain] = started.state.chains.values()
    return chain.chain.ids(), result.kv


@pytest.mark.parametrize(("name", "least"), [("hello_tool", 0), ("parallel_tools", 32), ("plan_act_replan", 200)])
async def test_the_same_tokens_with_and_without_prefilling_ahead(
    vllm_engine: VLLMEngine, steady: Callable[[str], ModuleType], name: str, least: int
) -> None:
    ahead, report = await run(vllm_engine, steady(name), "bidirectional")
    without, plain = await run(vllm_engine, steady(name), "prefix")
    assert ahead == without
    assert sum(step.prefilled for step in report.steps) >= least  # the demo model may answer hello_tool without a call
    assert plain.totals.prefetched == 0
    for step in (*report.steps, *plain.steps):
        assert step.cached == step.predicted or (step.adopted and step.cached > step.predicted)
        assert sum(getattr(step, part) for part in PARTS) == step.prompt
    assert vllm_engine.started
