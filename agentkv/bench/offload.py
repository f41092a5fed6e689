"""vLLM's own CPU tier, as ``stock+offload`` uses it."""

from functools import cache
from typing import Any

from agentkv.errors import NotSupported

__all__ = ("offload_options", "require_offload")

# GPU blocks that one copy moves; single blocks of a few hundred kilobytes would not fill the bus.
BLOCKS_PER_CHUNK = 4


def require_offload(spec: str) -> None:
    """Raise ``NotSupported`` if the engine that ``spec`` names has no CPU tier of vLLM's, before anything starts."""
    if spec.partition(":")[0] != "vllm":
        raise NotSupported(
            f"mode 'stock+offload' measures vLLM's own CPU tier, which the engine {spec!r} does not have: "
            "leave the mode out, or give the engine 'vllm' on a GPU"
        )
    try:
        from vllm.platforms import current_platform
    except ImportError:
        # Starting the engine says what is missing and how to get it.
        return
    if not (current_platform.is_cuda_alike() or current_platform.is_xpu()):
        raise NotSupported(
            "mode 'stock+offload': vLLM offloads KV from GPUs only, and runs on "
            f"{current_platform.device_type!r} here; leave the mode out"
        )


# One object for one size: vLLM gives each a name of its own, by which two would be two engines.
@cache
def offload_options(tier_bytes: int) -> dict[str, Any]:
    """Engine arguments that put vLLM's OffloadingConnector with ``tier_bytes`` of host memory behind the pool."""
    from vllm.config import KVTransferConfig

    sizes = {"cpu_bytes_to_use": tier_bytes, "blocks_per_chunk": BLOCKS_PER_CHUNK}
    connector = KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=sizes)
    return {"kv_transfer_config": connector}
