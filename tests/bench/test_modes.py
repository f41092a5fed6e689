"""Modes by name, and what cannot be asked for."""

import pytest
from attrs import evolve

from agentkv.bench import MODES, ModeConfig, find_modes
from agentkv.bench.cap import candidate_caps
from agentkv.bench.offload import require_offload
from agentkv.config import EngineKV
from agentkv.engines import EngineInfo
from agentkv.errors import NotSupported, SetupError


def test_modes_differ_in_their_configuration_alone() -> None:
    everything = ModeConfig(follow=True, leases=True, admission=True)
    assert find_modes("stock, bidirectional") == {"stock": ModeConfig(), "bidirectional": everything}
    assert MODES["stock-off"] == ModeConfig(reuse=False)


def test_a_cap_replaces_the_trials() -> None:
    found = find_modes("stock,stock+cap", cap=7)
    assert (found["stock"].cap, found["stock+cap"].cap) == (None, 7)
    assert find_modes("stock+cap")["stock+cap"].cap == "best"


def test_what_a_mode_has_can_be_switched_off() -> None:
    found = find_modes("stock,bidirectional", without=("follow",))
    assert found == {"stock": ModeConfig(), "bidirectional": ModeConfig(leases=True, admission=True)}
    assert find_modes("bidirectional", without=("leases",)) == {"bidirectional": ModeConfig(follow=True)}


def test_only_what_is_compared_changes_the_engine() -> None:
    assert ModeConfig(follow=True, cap=3, reuse=False).engine_kv() is None
    # In line there is room for all agents of a workload.
    base = EngineKV(max_queued=1 << 20)
    assert ModeConfig(leases=True, kv_pool_ratio=0.7).engine_kv() == evolve(base, kv_pool_ratio=0.7, admission="none")
    assert ModeConfig(leases=True, admission=True).engine_kv() == base


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("stock,stok", "no mode 'stok'; there are stock-off, stock,"),
        ("stock,stock", "'stock' is listed twice"),
        ("", "''"),
    ],
)
def test_wrong_lists_are_refused(names: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        find_modes(names)


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(SetupError, match="cap=0"):
        find_modes("stock+cap", cap=0)


def test_several_pool_ratios_are_modes_of_their_own() -> None:
    found = find_modes("stock,bidirectional", kv_pool_ratios=(0.7, 0.95))
    assert list(found) == ["stock", "bidirectional@0.7", "bidirectional@0.95"]
    assert found["stock"] == ModeConfig()
    assert found["bidirectional@0.95"].kv_pool_ratio == 0.95
    assert list(find_modes("bidirectional", kv_pool_ratios=(0.7,))) == ["bidirectional"]
    with pytest.raises(SetupError, match="several different ones"):
        find_modes("bidirectional", kv_pool_ratios=(0.7, 0.7))


def test_a_tier_needs_a_size_and_an_engine_that_has_one() -> None:
    with pytest.raises(SetupError, match="'stock\\+offload' needs the size of its tier; give --cpu-tier-bytes"):
        find_modes("stock+offload")
    with pytest.raises(SetupError, match="cpu_tier_bytes=-1 must be at least 0"):
        find_modes("stock+offload", cpu_tier_bytes=-1)
    found = find_modes("stock,stock+offload", cpu_tier_bytes=1 << 30)
    assert (found["stock"].cpu_tier_bytes, found["stock+offload"].cpu_tier_bytes) == (0, 1 << 30)
    with pytest.raises(NotSupported, match="which the engine 'sim:h200' does not have: leave the mode out"):
        require_offload("sim:h200")


@pytest.mark.vllm
def test_vllm_offloads_from_gpus_only() -> None:
    with pytest.raises(NotSupported, match="runs on 'cpu' here; leave the mode out"):
        require_offload("vllm")


def test_admission_needs_leases() -> None:
    with pytest.raises(NotSupported, match="admission=True with leases=False"):
        ModeConfig(admission=True)


@pytest.mark.parametrize("ratio", [0, 1.01, float("nan")])
@pytest.mark.parametrize("mode", ["bidirectional", "stock"])
def test_a_pool_ratio_out_of_bounds_is_refused(ratio: float, mode: str) -> None:
    with pytest.raises(SetupError, match="kv_pool_ratio"):
        find_modes(mode, kv_pool_ratios=(ratio,))


def test_caps_worth_trying_are_around_what_fits(shape) -> None:  # type: ignore[no-untyped-def]
    one = shape(chains=20)

    def caps(pool: int | None) -> list[int]:
        info = EngineInfo(
            name="x", engine_id="", model="", model_path="", block_size=32, max_model_len=9999, pool_blocks=pool
        )
        return candidate_caps(one, info, 20)

    assert caps(one.blocks(32)) == [20]
    assert caps(None) == [20]
    own = one.blocks(32) - one.shared_blocks(32)
    assert caps(one.shared_blocks(32) + own // 2) == [8, 10, 12]
