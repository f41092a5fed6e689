"""How many bytes of KV a token takes, and how many tokens, chains, anchors and branches a pool holds."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from attrs import evolve, field, frozen, validators

from agentkv.errors import SetupError
from agentkv.kv.layers import LayerKind

__all__ = ("KVGroup", "KVPool", "bytes_per_token", "pool_of", "spec_bytes_per_token")


@frozen(kw_only=True)
class KVGroup:
    """One group of layers in an engine's own KV-cache specification.

    ``page_bytes`` is what one layer's block of ``block_size`` tokens takes on one device. ``window``: tokens that
    the layers look back on; None: all.
    """

    layers: int
    page_bytes: int
    block_size: int
    window: int | None = None

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of ``tokens`` tokens holds: all it filled, or those that its window reaches."""
        return -(-tokens // self.block_size) - self._dropped(tokens)

    def shared(self, prefix: int, tokens: int) -> int:
        """Of those, the ones that lie wholly in its first ``prefix`` tokens, which another sequence may hold, too."""
        return max(0, min(prefix, tokens) // self.block_size - self._dropped(tokens))

    def _dropped(self, tokens: int) -> int:
        # The next token still looks back on window - 1 of those that are there.
        return max(0, tokens - self.window + 1) // self.block_size if self.window is not None else 0


@frozen(kw_only=True)
class KVPool:
    """``blocks`` usable blocks of a device, from which every group of layers takes its own.

    ``block_bytes`` is one block's size in bytes, ``ratio`` the share of the blocks that leases may hold.
    """

    groups: tuple[KVGroup, ...] = field(validator=validators.min_len(1))
    blocks: int
    block_bytes: int
    ratio: float = 1.0

    @property
    def leasable(self) -> int:
        """Blocks that leases may hold."""
        return int(self.blocks * self.ratio)

    @property
    def tokens(self) -> int | None:
        """Length of the longest single sequence that fits, in tokens of whole blocks.

        None: no layer looks back on everything, so that what fits at all fits at any length.
        """
        size = self.groups[0].block_size
        windows = [group.window for group in self.groups if group.window is not None]
        if len(windows) == len(self.groups) and self.held(max(windows) + size) <= self.blocks:
            return None
        low, high = 0, self.blocks
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.held(middle * size) <= self.blocks else (low, middle - 1)
        return low * size

    def held(self, tokens: int) -> int:
        """Blocks that one sequence of ``tokens`` tokens holds."""
        return sum(group.blocks(tokens) for group in self.groups)

    def own(self, tokens: int, prefix: int) -> int:
        """Blocks that it holds alone where its first ``prefix`` tokens are held by another, too."""
        return self.held(tokens) - sum(group.shared(prefix, tokens) for group in self.groups)

    def chains(self, *, prompt: int, anchor: int = 0, branches: int = 0, branch: int = 0) -> int:
        """Chains of ``prompt`` tokens that leases may hold at once.

        They share an anchor of ``anchor`` tokens, held once; each has ``branches`` branches of ``branch`` tokens
        that share it as their trunk.
        """
        each = self.own(prompt, anchor) + branches * self.own(prompt + branch, prompt)
        return max(0, self.leasable - self.held(anchor)) // each if each else 0

    def anchors(self, tokens: int) -> int:
        """Different anchors of ``tokens`` tokens that leases may hold at once."""
        return self.leasable // self.held(tokens) if tokens else 0

    def branches(self, *, prompt: int, branch: int) -> int:
        """Branches of ``branch`` tokens on one trunk of ``prompt`` tokens that leases may hold at once."""
        each = self.own(prompt + branch, prompt)
        return max(0, self.leasable - self.held(prompt)) // each if each else 0


def pool_of(
    layers: Sequence[LayerKind],
    *,
    pool_bytes: int,
    block_size: int,
    dtype_bytes: int,
    tensor_parallel: int = 1,
    ratio: float = 1.0,
    hybrid: bool = True,
) -> KVPool:
    """The pool that vLLM makes of ``pool_bytes`` on each device.

    Kinds of layers are cut into groups of equally many, each with a block table of its own; a group that is short
    is padded (vllm/v1/core/kv_cache_utils.py). One block is the engine's own, the null block.
    ``hybrid`` False: vLLM's hybrid manager is off, so that sliding layers beside full ones keep everything, too.
    Raises ``SetupError`` where kinds do not take the same bytes for a token.
    """
    if not hybrid and any(kind.window is None for kind in layers):
        layers = [evolve(kind, window=None) for kind in layers]
    pages = {kind.token_bytes(dtype_bytes=dtype_bytes, tensor_parallel=tensor_parallel) * block_size for kind in layers}
    if len(pages) != 1:
        raise SetupError("the model's layers store unlike amounts for a token; such pools are not counted here")
    (page,) = pages
    counts = Counter[int | None]()
    for kind in layers:
        counts[kind.window] += kind.layers
    size = _group_size(counts.values())
    groups = tuple(
        KVGroup(layers=size, page_bytes=page, block_size=block_size, window=window)
        for window, count in counts.items()
        for _ in range(-(-count // size))
    )
    block_bytes = size * page
    return KVPool(groups=groups, blocks=max(0, pool_bytes // block_bytes - 1), block_bytes=block_bytes, ratio=ratio)


def _group_size(counts: Collection[int]) -> int:
    """Layers in each group: as many as the smaller kind has, unless padding it to the larger costs little."""
    return max(counts) if max(counts) < 1.5 * min(counts) else min(counts)


def bytes_per_token(layers: Iterable[LayerKind], *, dtype_bytes: int, tensor_parallel: int = 1) -> int:
    """Bytes of KV per token and device while every layer keeps it: the sum over layers of ``token_bytes``."""
    return sum(
        kind.layers * kind.token_bytes(dtype_bytes=dtype_bytes, tensor_parallel=tensor_parallel) for kind in layers
    )


def spec_bytes_per_token(groups: Iterable[KVGroup]) -> int:
    """Bytes of KV per token and device by the engine's own specification, its padding included."""
    return sum(group.layers * group.page_bytes // group.block_size for group in groups)
