"""A second tier of a size that the simulator cannot have is refused when it starts."""

import pytest

from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import EngineStartError
from agentkv.kv import PolicySettings


@pytest.mark.parametrize("size", [10, 1 << 60])
async def test_none_and_too_many_blocks_are_refused(size: int) -> None:
    with pytest.raises(EngineStartError, match=f"cpu_tier_bytes={size} holds .* set it between these, or to 0"):
        async with SimEngine(lambda request: [1], kv=PolicySettings(cpu_tier_bytes=size)):
            pass


async def test_where_prompts_take_no_time_nothing_is_worth_fetching() -> None:
    cost = StepCost(base_s=0.01, prefill_token_s=0.0)
    async with SimEngine(lambda request: [1], cost=cost, kv=PolicySettings(cpu_tier_bytes=1 << 30)) as engine:
        assert (await engine.stats())["tier_least_tokens"] > 1 << 40
