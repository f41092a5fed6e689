"""Attention layers of a model, and the KV that one of them stores for a token."""

from attrs import field, frozen, validators

from agentkv.errors import SetupError

__all__ = ("DTYPE_BYTES", "LayerKind")

#: Bytes of one stored value by the name that vLLM gives a KV cache's type. Types that pack scales beside the
#: values are left out: their size is no product.
DTYPE_BYTES = {
    "float32": 4,
    "float": 4,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "half": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}


@frozen(kw_only=True)
class LayerKind:
    """``layers`` layers that store KV alike.

    A token takes, for each KV head, a key of ``head_size`` values and a value vector of ``value_size``; 0 where
    one latent vector stands for both (MLA), which every device holds whole. ``window``: tokens that such a layer
    looks back on, itself included; None: all.
    """

    layers: int = field(validator=validators.ge(1))
    kv_heads: int = field(validator=validators.ge(1))
    head_size: int = field(validator=validators.ge(1))
    value_size: int = field(validator=validators.ge(0))
    window: int | None = field(default=None, validator=validators.optional(validators.ge(1)))

    def heads_on_device(self, tensor_parallel: int) -> int:
        """KV heads on each of ``tensor_parallel`` devices: split, or one on each where there are fewer heads.

        Raises ``SetupError`` where the heads cannot be dealt out evenly.
        """
        if self.value_size == 0:
            return self.kv_heads
        more, fewer = max(self.kv_heads, tensor_parallel), min(self.kv_heads, tensor_parallel)
        if more % fewer:
            raise SetupError(
                f"tensor_parallel={tensor_parallel} does not go with {self.kv_heads} KV heads: one must divide "
                "the other"
            )
        return max(1, self.kv_heads // tensor_parallel)

    def token_bytes(self, *, dtype_bytes: int, tensor_parallel: int = 1) -> int:
        """Bytes of one token in one layer on one device: heads there × (key + value) × bytes of a value."""
        return self.heads_on_device(tensor_parallel) * (self.head_size + self.value_size) * dtype_bytes
