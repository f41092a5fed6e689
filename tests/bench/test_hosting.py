"""Which engines modes share."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.bench import Benchmark, SeedShape, find_modes, hosting, run_benchmark
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


async def test_without_a_floor_no_engine_is_started_but_the_modes_own(
    shape: Callable[..., SeedShape], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def simulated(_: str, **given: Any) -> Engine:
        opened.append(given["options"])
        return open_engine("sim:cpu", script=given["script"] or (lambda request: tuple(range(request.max_tokens))))

    monkeypatch.setattr(hosting, "open_engine", simulated)
    monkeypatch.setattr("agentkv.bench.runner.require_offload", lambda _: None)
    bench = Benchmark(
        engine="vllm",
        workload=shape(chains=1),
        modes=find_modes("stock+offload", cpu_tier_bytes=1 << 30),
        floor_samples=0,
        warm_up=0,
    )
    await run_benchmark(bench, lambda _: None)
    assert len(opened) == 1
    assert "kv_transfer_config" in opened[0]
