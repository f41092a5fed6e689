"""Given ids on the simulator."""

from typing import Any

import pytest

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import SimEngine
from agentkv.errors import EngineError


async def test_the_made_up_model_says_given_ids_whatever_its_script(ask: Any) -> None:
    async with SimEngine(lambda _: [1, 2, 3]) as engine:
        deltas = await ask(engine, list(range(10)), 4, forced=(9, 8, 7, 6))
        assert [i for delta in deltas for i in delta.token_ids] == [9, 8, 7, 6]
        assert deltas[-1].finish == "length"
        again = await ask(engine, [*range(10), 9, 8, 7, 6, *range(30)], 1, request_id="again")
        assert again[-1].usage.cached == 0, "less than a block"
        assert engine.info.capabilities["forcing"] == "on"


@pytest.mark.parametrize("more", [{"forced": (1,)}, {"forced": (1, 2, 3)}, {"forced": (1, 2), "constraint": "{}"}])
def test_as_many_as_asked_for_and_no_constraint(more: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="give as many as max_tokens, and no constraint"):
        GenerateRequest(request_id="x", token_ids=[1], max_tokens=2, **more)
