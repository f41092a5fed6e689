"""Which engines modes share."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.bench import SeedShape, hosting
from agentkv.engines import Engine, open_engine


async def test_modes_share_an_engine_only_where_all_its_options_are_equal(
    shape: Callable[..., SeedShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(_: str, **given: Any) -> Engine:
        return open_engine("sim:cpu", options=given["options"])

    # A real engine is kept for the next mode, a simulated one is not: one stands in for the other here.
    monkeypatch.setattr(hosting, "open_engine", simulated)
    host = hosting.EngineHost("vllm", shape(), block=32, pool=None, warm_up=0, options={}, progress=lambda line: None)
    async with host:
        plain, few = await host.get(None), {"max_num_seqs": 8}
        assert await host.get(None) is plain
        narrow = await host.get(None, few)
        assert await host.get(None, {**few}) is narrow
        assert (await host.get(None, {"max_num_seqs": 4})).info.max_num_seqs == 4
