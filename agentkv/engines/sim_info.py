"""What the simulated engine says about itself and its requests."""

import uuid
from pathlib import Path
from typing import Any

from agentkv.engines.base import EngineInfo, Usage
from agentkv.engines.sim_kv import kv_capabilities, kv_stats
from agentkv.engines.sim_machine import Machine
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler
from agentkv.kv import PolicySettings

__all__ = ("MODEL_PATH", "counters", "describe", "usage_of")

MODEL_PATH = Path(__file__).parent / "sim_model"

_CAPABILITIES = {
    "prefix_cache": "on",
    "cache_salt": "on",
    "reuse_per_request": "on",
    "constraint": "not enforced: the script decides what is generated",
    "forcing": "on",
    "sampling": "not used: the script decides what is generated",
}


def describe(machine: Machine, kv: PolicySettings | None) -> EngineInfo:
    """The engine that pretends to be ``machine``, under a new id."""
    return EngineInfo(
        name="sim",
        engine_id=f"sim-{uuid.uuid4().hex[:12]}",
        model="sim",
        model_path=str(MODEL_PATH),
        block_size=machine.block_size,
        max_model_len=machine.max_model_len,
        pool_blocks=machine.pool_blocks,
        kv_bytes_per_token=machine.kv_bytes_per_token,
        max_num_batched_tokens=machine.max_num_batched_tokens,
        max_num_seqs=machine.max_num_seqs,
        capabilities={
            **_CAPABILITIES,
            "async_scheduling": "on" if machine.async_scheduling else "off: the machine does without",
            **kv_capabilities(kv),
        },
    )


def usage_of(entry: SimRequest) -> Usage:
    """What the engine reports of a request that has ended."""
    assert entry.started_at is not None
    assert entry.first_at is not None
    return Usage(
        prompt=entry.prompt,
        cached=entry.cached or 0,
        generated=entry.generated,
        queue_s=entry.started_at - entry.queued_at,
        prefill_s=entry.first_at - entry.started_at,
    )


def counters(scheduler: Scheduler, steps: int) -> dict[str, Any]:
    """What ``SimEngine.stats`` returns."""
    managed = kv_stats(scheduler)
    return {
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting) + managed.get("held_requests", 0) + managed.get("tier_waiting", 0),
        "prompt_tokens": scheduler.prompt_tokens,
        "cached_tokens": scheduler.cached_tokens,
        "computed_tokens": scheduler.computed_tokens,
        "generated_tokens": scheduler.generated_tokens,
        "steps": steps,
        "preemptions": scheduler.preemptions,
        "evictions": scheduler.pool.evictions,
        "pool_blocks": scheduler.pool.size,
        "pool_used": 1 - scheduler.pool.free / scheduler.pool.size,
        "free_blocks": scheduler.pool.free,
        "cached_blocks": scheduler.pool.cached,
        "reusable_blocks": scheduler.pool.reusable,
        **managed,
    }
