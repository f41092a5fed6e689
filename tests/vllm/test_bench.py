"""The benchmark's books against those of a real vLLM."""

from itertools import count

import pytest

from agentkv.bench import Delay, ModeConfig, SeedShape
from agentkv.bench.repetition import run_repetition
from agentkv.bench.steady import Steady
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("leases")

SALTS = count()
MANAGED = ModeConfig(follow=True, leases=True, admission=True, prefetch_step=64)


def small(**numbers: object) -> SeedShape:
    """Four agents whose tools return so soon that resumes come upon prefetches in flight."""
    shape = {
        "chains": 4,
        "prompt_tokens": 400,
        "shared_tokens": 128,
        "history_turns": 4,
        "tool_calls": 2,
        "result_tokens": (256, 280),
        "result_pieces": 2,
        "tool_seconds": Delay("uniform", 0.1, 0.3),
        "output_tokens": 4,
        "start_spread": 0.5,
        "seed": next(SALTS),
    }
    return SeedShape(**{**shape, **numbers})  # type: ignore[arg-type]


async def test_ledger_vllm_and_our_scheduler_agree_to_the_token(vllm_engine: VLLMEngine) -> None:
    found = await run_repetition(vllm_engine, small(), MANAGED, f"books/{next(SALTS)}", lambda _: None)
    books, tokens = found.reconciliation(), found.to_json()["tokens"]
    answered, engine, scheduler = books["answered"], books["engine"], books["scheduler"]
    assert books["agrees"] is True, books
    assert tokens["aborted"] > 0, "no prefetch was cut off: nothing was tested"
    assert found.to_json()["preemptions"] == 0
    # What nobody read is counted on neither side, or on both of the engine's.
    assert answered["computed"] <= engine["local_compute"] <= scheduler["answered"]["computed"]
    assert answered["prompt"] <= sum(engine.values()) <= scheduler["answered"]["prompt"]
    if books["unread"]["requests"] == 0:
        assert answered["computed"] == engine["local_compute"] == scheduler["answered"]["computed"]
        assert answered["cached"] == engine["local_cache_hit"]
    assert scheduler["recomputed"] == 0
    cut_off = scheduler["unanswered"]["computed"] + books["unread"]["computed"]
    assert 0 <= cut_off <= tokens["aborted"]


async def test_an_agent_that_is_taken_away_leaves_nothing_behind(vllm_engine: VLLMEngine) -> None:
    steady = Steady(agents=3, duration=6.0, settle=2.0)
    found = await run_repetition(
        vllm_engine, small(start_spread=0.0), MANAGED, f"books/{next(SALTS)}", lambda _: None, steady
    )
    # On a busy machine no turn may have ended in so short a window; then each counts as one that waits.
    assert found.turns or found.cut
    assert found.to_json()["makespan_s"] is None
    stats = await vllm_engine.kv("stats", {})
    assert (stats["leases"], stats["runs"], stats["held_requests"], stats["errors"]) == (0, 0, 0, {})
    for _, *shares in found.series.points:
        assert sum(shares) == pytest.approx(1.0)
