"""What fails in vLLM's processes while an engine starts reaches whoever started it, in one line."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from agentkv.engines.vllm_start import start_report
from agentkv.errors import EngineStartError, NotSupported
from agentkv.plugin.connector import TierConnector, slots_of
from agentkv.plugin.settings import settings_of

Make = Callable[..., Any]
BLOCK_BYTES = 2 * 32 * 4 * 4


def worker(core: Any, tier_bytes: int) -> TierConnector:
    config = core.scheduler.vllm_config
    config.additional_config["agentkv"]["cpu_tier_bytes"] = tier_bytes
    return TierConnector(config, KVConnectorRole.WORKER, core.scheduler.kv_cache_config)


def kv(blocks: int = 64) -> torch.Tensor:
    return torch.zeros(blocks, 1, 4, 64)


def test_memory_that_the_machine_does_not_give_is_one_line_with_the_remedy(make_core: Make) -> None:
    with start_report() as reported:
        with pytest.raises(EngineStartError):
            worker(make_core(tier_blocks=8), 1 << 60).register_kv_caches({"layer": kv()})
        assert reported().startswith(f"cpu_tier_bytes={1 << 60}: this machine does not give that much memory (")
        assert reported().endswith("; lower it")


def test_a_layout_that_cannot_be_moved_is_reported_by_name(make_core: Make) -> None:
    with start_report() as reported:
        with pytest.raises(NotSupported):
            worker(make_core(tier_blocks=8), 8 * BLOCK_BYTES).register_kv_caches({"layer": kv()[:, :, :, ::2]})
        assert "whole words in one piece" in reported()


def test_a_strict_engine_that_cannot_be_managed_says_why(make_core: Make) -> None:
    with start_report() as reported:
        with pytest.raises(EngineStartError):
            make_core(settings={"strict": True, "cpu_tier_bytes": 1 << 20})
        assert reported().startswith("agentkv: no second tier: the engine was started without")
    with pytest.raises(EngineStartError):
        make_core(settings={"strict": True, "cpu_tier_bytes": 1 << 20})


def test_a_start_that_works_reports_nothing_and_takes_no_more_than_was_asked_for(make_core: Make) -> None:
    with start_report() as reported:
        core = make_core(tier_blocks=8)
        connector = worker(core, 8 * BLOCK_BYTES + BLOCK_BYTES - 1)
        connector.register_kv_caches({"layer": kv()})
        assert reported() == ""
    assert connector._host is not None
    assert connector._host.memory.nbytes == 8 * BLOCK_BYTES
    for workers in (1, 2, 3):
        for size in (BLOCK_BYTES, 7 * BLOCK_BYTES - 1, 100 * BLOCK_BYTES + 5):
            taken = slots_of(size, core.scheduler.kv_cache_config, workers) * workers * BLOCK_BYTES
            assert size - workers * BLOCK_BYTES < taken <= size


def test_a_connector_of_an_engine_that_says_nothing_of_a_tier_keeps_no_memory(make_core: Make) -> None:
    core = make_core(tier_blocks=8)
    core.scheduler.vllm_config.additional_config = {}
    connector = TierConnector(core.scheduler.vllm_config, KVConnectorRole.WORKER, core.scheduler.kv_cache_config)
    connector.register_kv_caches({"layer": kv()})
    assert connector._host is not None
    assert connector._host.memory.nbytes == 0


def test_settings_that_are_no_object_are_named(make_core: Make) -> None:
    core = make_core()
    for given in ({"agentkv": "text"}, {"agentkv": [1]}):
        core.scheduler.vllm_config.additional_config = given
        with pytest.raises(NotSupported, match="'agentkv' is"):
            settings_of(core.scheduler.vllm_config)


@pytest.mark.parametrize(("stages", "even"), [(1, True), (2, True), (3, False)])
def test_a_tier_over_pipeline_stages_of_unlike_size_is_refused_by_name(
    make_core: Make, stages: int, even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core(tier_blocks=8)
    # The model has two layers, of which each worker here has one.
    monkeypatch.setattr(core.scheduler.vllm_config.parallel_config, "pipeline_parallel_size", stages)
    with nullcontext() if even else pytest.raises(NotSupported, match=r"pipeline_parallel_size=3.*2 layers"):
        worker(core, 8 * BLOCK_BYTES).register_kv_caches({"layer": kv()})
