"""What clients of the simulated engine ask about leases and runs."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from secrets import token_urlsafe
from typing import Any

from attrs import asdict

from agentkv.engines.base import EngineInfo
from agentkv.engines.sim_cache import BlockPool
from agentkv.engines.sim_holder import PoolHolder
from agentkv.engines.sim_machine import MOST_BLOCKS
from agentkv.engines.sim_managed import ManagedScheduler
from agentkv.engines.sim_scheduler import Scheduler
from agentkv.errors import EngineStartError
from agentkv.kv import KVPolicy, PolicySettings, perform, reset_answer

__all__ = ("kv_capabilities", "kv_stats", "make_scheduler", "operate")


def make_scheduler(
    kv: PolicySettings | None, info: EngineInfo, now: Callable[[], float], **limits: int
) -> Scheduler | ManagedScheduler:
    """The scheduler over a new pool for the engine that ``info`` describes; stock where ``kv`` is None."""
    assert info.pool_blocks is not None
    pool, block_size = BlockPool(info.pool_blocks), info.block_size
    if kv is None:
        return Scheduler(pool, block_size=block_size, **limits)
    holder, block_bytes = PoolHolder(pool), (info.kv_bytes_per_token or 0) * block_size
    slots = _slots(kv, block_bytes)
    policy = KVPolicy(
        kv,
        holder=holder,
        pool_blocks=info.pool_blocks,
        block_size=block_size,
        engine_id=info.engine_id,
        mint=lambda: token_urlsafe(18),
        bytes_per_block=block_bytes,
        # Planning takes no simulated time, so there is nothing to spare.
        retry_seconds=0.0,
        host=holder if slots else None,
        slots=slots,
    )
    return ManagedScheduler(pool, policy, now, block_size=block_size, **limits)


def _slots(kv: PolicySettings, block_bytes: int) -> int:
    """Blocks that the second tier holds. Raises ``EngineStartError`` for none, or more than books can be kept of."""
    if kv.capabilities()["tier"] != "on" or not block_bytes:
        return 0
    slots = kv.cpu_tier_bytes // block_bytes
    if not 0 < slots <= MOST_BLOCKS:
        raise EngineStartError(
            f"cpu_tier_bytes={kv.cpu_tier_bytes} holds {slots} blocks of {block_bytes} bytes; the simulator takes 1 to "
            f"{MOST_BLOCKS}: set it between these, or to 0 for no second tier"
        )
    return slots


def kv_capabilities(kv: PolicySettings | None) -> dict[str, str]:
    """What of KV management is in force."""
    if kv is None:
        names = ("leases", "order", "admission", "tier")
        return dict.fromkeys(names, "off: the engine was started without KV management")
    return kv.capabilities()


def kv_stats(scheduler: Scheduler) -> dict[str, Any]:
    """The policy's counters and the held requests; nothing on a stock scheduler."""
    if not isinstance(scheduler, ManagedScheduler):
        return {}
    requests = scheduler.requests
    return {
        **scheduler.policy.stats(),
        "held_requests": len(requests.held),
        "live_requests": len(requests.directives),
        "pool_blocks": scheduler.pool.size,
        "free_blocks": scheduler.pool.free,
    }


def operate(
    scheduler: Scheduler, info: EngineInfo, operation: str, payload: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Do one operation of ``agentkv.kv.operations``, or ``info`` or ``reset``; ``{"error": why}`` where that fails."""
    if not isinstance(scheduler, ManagedScheduler):
        off = {
            "version": info.version,
            "capabilities": {each: info.capabilities[each] for each in kv_capabilities(None)},
        }
        return off if operation == "info" else {"error": f"leases: {info.capabilities['leases']}"}
    policy = scheduler.policy
    if operation == "info":
        return _describe(policy, info)
    policy.settle(now)
    if operation == "reset":
        return _reset(scheduler, now)
    # Through JSON, as on the way to an engine in another process.
    answer = perform(policy, operation, json.loads(json.dumps(payload)), now)
    if operation == "occupancy":
        return {**answer, **_unleased(scheduler)}
    return {**answer, **kv_stats(scheduler)} if operation == "stats" else answer


def _reset(scheduler: ManagedScheduler, now: float) -> dict[str, Any]:
    policy, pool = scheduler.policy, scheduler.pool
    leases = policy.reset(now)
    with policy.tier.mover.emptying() if policy.tier is not None else nullcontext():
        done, in_use = pool.forget_all(), pool.size - pool.free
    return reset_answer(leases, policy.leases.epoch, done=done, in_use=in_use)


def _unleased(scheduler: ManagedScheduler) -> dict[str, int]:
    pool, held = scheduler.pool, scheduler.policy.leases.table.held
    return {
        "running": pool.size - pool.free - held,
        "cached": pool.reusable,
        "free": pool.free - pool.reusable,
    }


def _describe(policy: KVPolicy, info: EngineInfo) -> dict[str, Any]:
    slots = policy.tier.mover.copies.slots if policy.tier is not None else 0
    return {
        "version": info.version,
        "engine_id": info.engine_id,
        "epoch": policy.leases.epoch,
        "block_size": info.block_size,
        "pool_blocks": info.pool_blocks,
        "kv_bytes_per_token": info.kv_bytes_per_token,
        "tier_slots": slots,
        "tier_bytes": slots * policy.records.bytes_per_block,
        "settings": asdict(policy.settings),
        "capabilities": dict(policy.settings.capabilities()),
    }
