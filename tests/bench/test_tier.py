"""What a second tier is worth on the simulator when the pool holds half of what agents hold at their ends."""

from typing import Any

import pytest

from agentkv.bench import page
from agentkv.bench.snapshot import moved
from agentkv.errors import SetupError

SHAPE: dict[str, Any] = {
    "engine": "sim:h200",
    "block": 16,
    "chains": 20,
    "prompt_tokens": 4000,
    "shared_tokens": 1000,
    "tool_calls": 6,
    "output_tokens": 32,
}


@pytest.fixture(scope="module")
def tiered(bench: Any) -> dict[str, Any]:
    return bench("bidirectional,bidirectional+tier", pool=0.5, cpu_tier_bytes=16 << 30, **SHAPE)


@pytest.fixture(scope="module")
def modes(bench: Any, tiered: dict[str, Any]) -> dict[str, Any]:
    return {**tiered["modes"], "whole": bench("bidirectional", pool=1.0, **SHAPE)["modes"]["bidirectional"]}


def test_hardly_anything_of_a_living_chain_is_computed_twice(modes: dict[str, Any]) -> None:
    tier = modes["bidirectional+tier"]
    assert tier["recomputed_after_eviction"] <= 0.002 * tier["tokens"]["prompt"]
    assert tier["tokens"]["computed"] <= 1.05 * modes["whole"]["tokens"]["computed"]


def test_agents_end_nearly_as_soon_as_with_the_whole_pool(modes: dict[str, Any]) -> None:
    assert modes["bidirectional+tier"]["makespan_s"] <= 1.15 * modes["whole"]["makespan_s"]
    assert modes["bidirectional+tier"]["makespan_s"] <= 0.85 * modes["bidirectional"]["makespan_s"]


def test_what_moved_and_who_waited_is_in_the_result(modes: dict[str, Any]) -> None:
    tier = modes["bidirectional+tier"]["tier"]
    assert tier["fetched"] > 0
    # A chain that leaves again takes only what it has grown by.
    assert 0 < tier["copied"] < tier["left"] == tier["copied"] + tier["stores_avoided"]
    assert 0 < tier["waited_ms"] / tier["waits"] < 1000
    assert modes["bidirectional"]["tier"] == {}


def test_in_a_window_no_fewer_stores_than_none_are_avoided() -> None:
    before = {"copied": 100, "left": 150, "stores_avoided": 50}
    for left, avoided in ((160, 0), (190, 10)):
        after = {"copied": 130, "left": left, "stores_avoided": max(0, left - 130)}
        assert moved(before, after) == {"copied": 30, "left": left - 150, "stores_avoided": avoided}
    assert moved({}, {}) == {}


def test_what_was_in_which_tier_when_is_in_the_result_and_on_the_page(tiered: dict[str, Any]) -> None:
    pool, host = (tiered["modes"]["bidirectional+tier"][name] for name in ("occupancy", "tier_occupancy"))
    assert host["classes"] == ["away", "also in the pool", "free"]
    assert [point[0] for point in host["points"]] == [point[0] for point in pool["points"]]
    for _, *shares in host["points"]:
        assert sum(shares) == pytest.approx(1.0, abs=1e-3)
        assert min(shares) >= 0
    assert max(point[1] for point in host["points"]) > 0
    assert tiered["modes"]["bidirectional"]["tier_occupancy"]["points"] == []
    evil = "<b>&tier"
    text = page({**tiered, "modes": {**tiered["modes"], evil: tiered["modes"]["bidirectional+tier"]}})
    assert "bidirectional+tier: second tier" in text
    assert "&lt;b&gt;&amp;tier: second tier" in text
    assert evil not in text


def test_a_mode_with_a_tier_needs_its_size(bench: Any) -> None:
    with pytest.raises(SetupError, match="cpu-tier-bytes"):
        bench("bidirectional+tier", pool=0.5)
