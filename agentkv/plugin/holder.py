"""vLLM's block pool as leases use it: references on blocks, and dead blocks put where they are reused first."""

from collections.abc import Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import BlockHash, make_block_hash_with_group_id

__all__ = ("PoolHolder",)


class PoolHolder:
    """Adapts vLLM's ``BlockPool`` to ``agentkv.kv.TierPool``; block ids are vLLM's, contents its block hashes.

    Owns no blocks. ``dead`` remembers which free blocks were put to the front, to tell them from those that
    are merely least recently used.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._blocks: list[Any] = pool.blocks
        self._dead: dict[int, Any] = {}

    @property
    def pool_blocks(self) -> int:
        """Blocks that requests and leases can have; the null block is never anybody's."""
        return int(self._pool.num_gpu_blocks) - 1

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody refers to, cached ones included. What vLLM frees behind a step in flight comes later."""
        return int(self._pool.get_num_free_blocks())

    def hold(self, blocks: Sequence[int]) -> None:
        """Take one reference on each block."""
        self._pool.touch([self._blocks[block] for block in blocks])

    def let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        """Give one reference back on each; returns how many became free. ``blocks`` are in chain order."""
        ordered = [self._blocks[block] for block in reversed(blocks)]
        if not dead:
            freed = sum(1 for block in ordered if block.ref_cnt == 1)
            self._pool.free_blocks(ordered)
            return freed
        free = []
        for block in ordered:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                free.append(block)
                self._dead[block.block_id] = block.block_hash
        if free:
            self._insert(free)
        return len(free)

    def ref_count(self, block: int) -> int:
        """References on the block, the leases' one included."""
        return int(self._blocks[block].ref_cnt)

    def take(self, count: int) -> list[int]:
        """Blocks with one reference each, which no request owns; ``count`` of them must be free."""
        return [block.block_id for block in self._pool.get_new_blocks(count)]

    def enter(self, block: int, digest: bytes) -> None:
        """Have requests find the block by its content, which must have been written."""
        self._pool._insert_block_hash(_key(digest), self._blocks[block], num_tokens=None)

    def find(self, digest: bytes) -> int | None:
        """A block with this content."""
        block = self._pool.cached_block_hash_to_block.get_one_block(_key(digest))
        return None if block is None else int(block.block_id)

    def worthless(self, limit: int) -> int:
        """Free blocks at the front of the queue that nobody asks for (uncached or dead), counted up to ``limit``."""
        count = 0
        block = self._pool.free_block_queue.fake_free_list_head.next_free_block
        while count < limit and block.next_free_block is not None and self.is_worthless(block):
            count += 1
            block = block.next_free_block
        return count

    def is_worthless(self, block: Any) -> bool:
        """Whether nobody asks for what a free block holds."""
        if block.block_hash is None:
            return True
        if self._dead.get(block.block_id) is block.block_hash:
            return True
        self._dead.pop(block.block_id, None)
        return False

    def revived(self, blocks: Sequence[Any]) -> None:
        """Take note that a request uses blocks again: when it lets them go, they are like any others."""
        for block in blocks:
            self._dead.pop(block.block_id, None)

    def _insert(self, blocks: list[Any]) -> None:
        """Link free blocks in behind the uncached ones: those are of even less use than dead ones."""
        queue = self._pool.free_block_queue
        before = self._last_uncached()
        after = before.next_free_block
        for block in blocks:
            before.next_free_block = block
            block.prev_free_block = before
            before = block
        before.next_free_block = after
        after.prev_free_block = before
        queue.num_free_blocks += len(blocks)

    def _last_uncached(self) -> Any:
        """The last of the uncached blocks at the front of the queue, or its head.

        While the pool has blocks that were never used, its last one ends that stretch and saves the walk.
        """
        last = self._blocks[-1]
        here = self._pool.free_block_queue.fake_free_list_head
        if last.ref_cnt == 0 and last.block_hash is None and last.next_free_block is not None:
            here = last
        while (following := here.next_free_block).next_free_block is not None and following.block_hash is None:
            here = following
        return here


def _key(digest: bytes) -> Any:
    # There is one group of layers, or the engine would not be managed.
    return make_block_hash_with_group_id(BlockHash(digest), 0)
