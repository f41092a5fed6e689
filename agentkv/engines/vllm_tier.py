"""Host memory for vLLM's second tier: whether the machine has it, and what is said about it."""

from collections.abc import Mapping
from typing import Any

from agentkv.engines.model_folder import ModelFolder
from agentkv.errors import EngineStartError

__all__ = ("check_tier", "tier_bytes", "tier_line")

GIB = 1 << 30
#: A block of this many tokens must fit at the very least; vLLM's own on a GPU.
LEAST_BLOCK = 16


def tier_bytes(options: Mapping[str, Any]) -> int:
    """What engine options reserve of host memory for KV, in bytes."""
    own = (options.get("additional_config") or {}).get("agentkv") or {}
    return int(own.get("cpu_tier_bytes", 0))


def check_tier(wanted: int, model: ModelFolder, free: int | None) -> None:
    """Raise ``EngineStartError`` where ``free`` bytes of memory (None: unknown) are too few, or ``wanted`` no block."""
    if not wanted:
        return
    if free is not None and wanted > free:
        raise EngineStartError(
            f"cpu_tier_bytes={wanted} ({wanted / GIB:.1f} GiB) is more than the {free / GIB:.1f} GiB of memory that "
            "are free on this machine: lower it, or free some"
        )
    per_token = model.kv_bytes_per_token
    if per_token is not None and wanted < per_token * LEAST_BLOCK:
        raise EngineStartError(
            f"cpu_tier_bytes={wanted} does not hold one block of model {model.name!r}, whose KV takes {per_token} "
            "bytes a token: raise it, or set it to 0 for no second tier"
        )


def tier_line(answer: Mapping[str, Any]) -> str:
    """What was reserved, from the answer to the operation ``info`` of an engine that has a second tier."""
    slots, size = answer["tier_slots"], answer["tier_bytes"]
    return (
        f"second tier: {size / GIB:.2f} GiB of host memory reserved, {slots} blocks, "
        f"{slots * answer['block_size']:,} tokens"
    )
