"""A second tier of a size that the simulator cannot have is refused when it starts."""

import pytest

from agentkv.engines.sim import SimEngine
from agentkv.errors import EngineStartError
from agentkv.kv import PolicySettings


@pytest.mark.parametrize("size", [10, 1 << 60])
async def test_none_and_too_many_blocks_are_refused(size: int) -> None:
    with pytest.raises(EngineStartError, match=f"cpu_tier_bytes={size} holds .* set it between these, or to 0"):
        async with SimEngine(lambda request: [1], kv=PolicySettings(cpu_tier_bytes=size)):
            pass
