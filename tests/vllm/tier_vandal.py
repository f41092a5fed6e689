"""What spoils the second tier's host memory inside vLLM's worker, for tests."""

from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group

__all__ = ("TierVandal",)


class TierVandal:
    """Mixed into vLLM's worker by ``worker_extension_cls``."""

    rank: int

    def spoil_host_memory(self, rank: int) -> int:
        """Flip a bit of every block in the host memory of the worker of this rank; how many there are."""
        if self.rank != rank:
            return 0
        host: Any = get_kv_transfer_group()._host  # type: ignore[attr-defined]
        host.memory[:, 7] ^= 1
        return len(host.memory)
