"""The simulated engine's pool, as leases and the second tier use it."""

from collections.abc import Sequence

from agentkv.engines.sim_cache import BlockPool

__all__ = ("PoolHolder",)


class PoolHolder:
    """Adapts ``BlockPool`` to ``agentkv.kv.TierPool``. Owns no blocks."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def hold(self, blocks: Sequence[int]) -> None:
        """Take one reference on each block."""
        self._pool.touch(self._pool[block] for block in blocks)

    def let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        """Give one reference back on each; returns how many became free. ``blocks`` are in chain order."""
        tail_first = [self._pool[block] for block in reversed(blocks)]
        if dead:
            return self._pool.release_dead(tail_first)
        before = self._pool.free
        self._pool.release(tail_first)
        return self._pool.free - before

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody refers to."""
        return self._pool.free

    def take(self, count: int) -> list[int]:
        """Blocks with one reference each."""
        return [block.id for block in self._pool.take(count)]

    def enter(self, block: int, digest: bytes) -> None:
        """Make a block that was taken findable."""
        self._pool.enter(self._pool[block], digest)

    def find(self, digest: bytes) -> int | None:
        """A block with this content."""
        block = self._pool.find(digest)
        return None if block is None else block.id

    def ref_count(self, block: int) -> int:
        """References on the block, the leases' one included."""
        return self._pool[block].refs
