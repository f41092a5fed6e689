"""The operations on leases and runs as a utility method of vLLM's engine core, JSON text in and out.

``await engine.engine_core.call_utility_async("agentkv", operation, payload)`` where ``payload`` is a JSON object
as a string; the answer is one too, ``{"error": why}`` if the operation could not be done at all. The operations
are those of ``agentkv.kv.operations``.
"""

import json
from typing import Any

import vllm
from attrs import asdict

from agentkv.kv import perform, reset_answer
from agentkv.plugin.manager import KVManager

__all__ = ("METHOD", "call", "install")

METHOD = "agentkv"
MAX_PAYLOAD = 1 << 20


def install() -> None:
    """Give vLLM's engine core the utility method; doing it twice changes nothing."""
    from vllm.v1.engine.core import EngineCore

    def agentkv(self: Any, operation: str, payload: str) -> str:
        return call(self.scheduler, operation, payload)

    setattr(EngineCore, METHOD, agentkv)


def call(scheduler: Any, operation: object, payload: object) -> str:
    """Do one operation on a scheduler's KV; returns the answer as JSON. Raises nothing."""
    try:
        return json.dumps(_answer(scheduler, operation, payload))
    except Exception as error:  # noqa: BLE001 - a client's call must not disturb the engine
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def _answer(scheduler: Any, operation: object, payload: object) -> dict[str, Any]:
    if not isinstance(payload, str) or len(payload) > MAX_PAYLOAD:
        return {"error": "payload: must be a JSON string of at most 1 MiB"}
    fields = json.loads(payload)
    if not isinstance(fields, dict):
        return {"error": "payload: must be a JSON object"}
    kv: KVManager | None = getattr(scheduler, "kv", None)
    if operation == "info":
        return _info(scheduler, kv)
    if kv is None:
        return {"error": f"leases: off: {getattr(scheduler, 'kv_off', 'another scheduler runs')}"}
    if operation == "reset":
        return _reset(scheduler, kv)
    # Time stands still in an idle engine except for its callers.
    kv.settle(at_once=True)
    answer = perform(kv.policy, operation, fields, kv.now())
    kv.settle_tier()
    scheduler.release_admitted()
    if operation == "occupancy":
        return {**answer, **kv.unleased_blocks()}
    return {**answer, **kv.process_stats()} if operation == "stats" else answer


def _info(scheduler: Any, kv: KVManager | None) -> dict[str, Any]:
    if kv is None:
        off = f"off: {getattr(scheduler, 'kv_off', '')}"
        names = ("leases", "order", "admission", "tier")
        return {"version": vllm.__version__, "capabilities": dict.fromkeys(names, off)}
    policy = kv.policy
    settings = policy.settings
    slots = policy.tier.mover.copies.slots if policy.tier is not None else 0
    return {
        "version": vllm.__version__,
        "engine_id": policy.leases.engine_id,
        "epoch": policy.leases.epoch,
        "block_size": policy.leases.block_size,
        "pool_blocks": kv.holder.pool_blocks,
        "kv_bytes_per_token": policy.records.bytes_per_block // policy.leases.block_size,
        "tier_slots": slots,
        # Each worker has its share of every block.
        "tier_bytes": slots * policy.records.bytes_per_block * scheduler.vllm_config.parallel_config.world_size,
        "settings": asdict(settings),
        "capabilities": {
            **settings.capabilities(),
            "order": "on" if kv.fcfs else "off: the engine's scheduling policy is not fcfs",
            **({"tier": f"off: {kv.tier_off}"} if kv.tier_off else {}),
        },
    }


def _reset(scheduler: Any, kv: KVManager) -> dict[str, Any]:
    leases = len(kv.policy.leases.table)
    done = bool(scheduler.reset_prefix_cache())
    in_use = kv.holder.pool_blocks - kv.holder.free_blocks
    return reset_answer(leases, kv.policy.leases.epoch, done=done, in_use=in_use)
