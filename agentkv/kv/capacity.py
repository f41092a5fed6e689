"""How many bytes of KV a token takes, and how many tokens a pool holds."""

from collections.abc import Iterable

from attrs import frozen

__all__ = ("KVGroup", "bytes_per_token", "pool_tokens", "spec_bytes_per_token")


@frozen(kw_only=True)
class KVGroup:
    """One group of layers in an engine's own KV-cache specification.

    ``page_bytes`` is what one layer's block of ``block_size`` tokens takes on one device.
    """

    layers: int
    page_bytes: int
    block_size: int


def bytes_per_token(*, layers: int, kv_heads: int, head_size: int, dtype_bytes: int, tensor_parallel: int = 1) -> int:
    """Bytes of KV per token and device: 2 × layers × KV heads × head size × bytes ÷ tensor parallel size.

    A model with fewer KV heads than devices keeps one head on each, as engines replicate them.
    """
    heads = max(1, -(-kv_heads // tensor_parallel))
    return 2 * layers * heads * head_size * dtype_bytes


def spec_bytes_per_token(groups: Iterable[KVGroup]) -> int:
    """Bytes of KV per token and device by the engine's own specification, its padding included."""
    return sum(group.layers * group.page_bytes // group.block_size for group in groups)


def pool_tokens(*, pool_bytes: int, token_bytes: int, block_size: int) -> int:
    """Tokens in whole blocks that ``pool_bytes`` hold."""
    return pool_bytes // (token_bytes * block_size) * block_size
