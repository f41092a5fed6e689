"""A worker extension for one test: it spoils KV, so that a comparison of outputs can be seen to fail."""

from typing import Any


class KVVandal:
    """vLLM mixes this into its worker class (``worker_extension_cls``)."""

    model_runner: Any

    def spoil_block(self, block: int) -> int:
        """Overwrite the KV of one block in all layers; returns how many values that were."""
        spoilt = 0
        for layer in self.model_runner.kv_caches:
            layer[block].mul_(-3.0).add_(0.5)
            spoilt += layer[block].numel()
        return spoilt
