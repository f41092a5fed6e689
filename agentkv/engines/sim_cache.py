"""A paged KV cache without the KV: blocks, reference counts, content keys, and the order of eviction.

The arithmetic is that of vLLM's block pool (``vllm/v1/core/block_pool.py``): full blocks are found by
content, and a block that nobody uses stays findable until its turn in the free queue comes.
"""

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from agentkv.errors import EngineError

__all__ = ("Block", "BlockPool", "KeyChain")


class Block:
    """One block of the pool. ``refs`` counts its users; ``key`` names its content once it is full."""

    __slots__ = ("id", "key", "refs")

    def __init__(self, block_id: int) -> None:
        self.id = block_id
        self.refs = 0
        self.key: bytes | None = None


class KeyChain:
    """The content keys of a growing sequence's full blocks, each computed once, when first asked for.

    A key covers all tokens up to the end of its block; ``salt`` enters at the root and so re-keys the chain.
    Raises ``EngineError`` for an id that is not an unsigned 32-bit number.
    """

    __slots__ = ("_block_bytes", "_bytes", "_keys", "_root")

    def __init__(self, token_ids: Sequence[int], block_size: int, salt: str | None) -> None:
        try:
            packed = array("I", token_ids)
        except (OverflowError, TypeError) as error:
            raise EngineError(f"token ids must be whole numbers from 0 to 4294967295: {error}") from None
        self._bytes = memoryview(packed).cast("B")
        self._block_bytes = block_size * packed.itemsize
        self._root = b"" if salt is None else hashlib.blake2b(salt.encode(), digest_size=16).digest()
        self._keys: list[bytes] = []

    def first(self, count: int) -> list[bytes]:
        """The first ``count`` keys."""
        if count > 0:
            self[count - 1]
        return self._keys[:count]

    def __getitem__(self, index: int) -> bytes:
        keys = self._keys
        while len(keys) <= index:
            start = len(keys) * self._block_bytes
            digest = hashlib.blake2b(keys[-1] if keys else self._root, digest_size=16)
            digest.update(self._bytes[start : start + self._block_bytes])
            keys.append(digest.digest())
        return keys[index]


class BlockPool:
    """All blocks of an engine: those in use, and the queue of free ones, next to be reused first.

    Knows neither requests nor time. ``evictions`` counts cached blocks that were given away.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.evictions = 0
        self._blocks = [Block(index) for index in range(size)]
        self._free: OrderedDict[int, Block] = OrderedDict((block.id, block) for block in self._blocks)
        # Those of them that hold no content: they stand before all others, and are many.
        self._empty = size
        # Free blocks whose content nobody will ask for: reused behind those without content, before all others.
        self._dead: OrderedDict[int, Block] = OrderedDict()
        # Equal content can sit in several blocks (two requests computed it at once): the oldest one serves hits, the
        # younger ones wait here for its end.
        self._cached: dict[bytes, Block] = {}
        self._doubles: dict[bytes, dict[int, Block]] = {}

    @property
    def free(self) -> int:
        """How many blocks nobody uses, cached ones included."""
        return len(self._free) + len(self._dead)

    @property
    def cached(self) -> int:
        """How many distinct contents can be hit."""
        return len(self._cached)

    @property
    def reusable(self) -> int:
        """How many blocks nobody uses whose content can be hit and is wanted still."""
        return self.free - self.worthless(self.size)

    def __getitem__(self, block_id: int) -> Block:
        return self._blocks[block_id]

    def find(self, key: bytes) -> Block | None:
        """The block that holds this content, used or free."""
        return self._cached.get(key)

    def touch(self, blocks: Iterable[Block]) -> None:
        """Add a user to each block; a free one leaves the queue."""
        for block in blocks:
            if block.refs == 0:
                queue = self._dead if block.id in self._dead else self._free
                del queue[block.id]
                self._empty -= queue is self._free and block.key is None
            block.refs += 1

    def take(self, count: int) -> list[Block]:
        """Hand out the ``count`` blocks first in the queue, evicting what they hold.

        Raises ``EngineError`` where fewer are free.
        """
        if count > self.free:
            raise EngineError(f"{count} blocks asked for, {self.free} are free")
        taken = []
        for _ in range(count):
            block = self._next_free()
            if block.key is not None:
                self._forget(block)
                self.evictions += 1
            block.refs = 1
            taken.append(block)
        return taken

    def enter(self, block: Block, key: bytes) -> None:
        """Make a full block's content findable."""
        block.key = key
        if self._cached.setdefault(key, block) is not block:
            self._doubles.setdefault(key, {})[block.id] = block

    def release(self, blocks: Iterable[Block]) -> None:
        """Take a user from each block; ``blocks`` come in the order in which they should be evicted.

        Blocks without a key go to the front of the queue (they can serve nobody), the others to its end.
        """
        keyless = []
        for block in blocks:
            block.refs -= 1
            if block.refs == 0:
                self._free[block.id] = block
                if block.key is None:
                    keyless.append(block)
        for block in reversed(keyless):
            self._free.move_to_end(block.id, last=False)
        self._empty += len(keyless)

    def release_dead(self, blocks: Iterable[Block]) -> int:
        """Take a user from each block, as ``release``, where nobody will ask for the content again.

        Returns how many became free.
        """
        free = []
        for block in blocks:
            block.refs -= 1
            if block.refs == 0:
                free.append(block)
        for block in reversed(free):
            self._dead[block.id] = block
            self._dead.move_to_end(block.id, last=False)
        return len(free)

    def worthless(self, limit: int) -> int:
        """Free blocks with no content or a dead one, counted up to ``limit``."""
        return min(limit, self._empty + len(self._dead))

    def forget_all(self) -> bool:
        """Empty the cache; False, and nothing done, while blocks are in use."""
        if self.free < self.size:
            return False
        for block in self._blocks:
            block.key = None
        self._cached.clear()
        self._doubles.clear()
        self._empty = self.size
        self._free.update(self._dead)
        self._dead.clear()
        return True

    def check_integrity(self, users: Iterable[Iterable[Block]]) -> None:
        """Assert that the pool is consistent; ``users`` are the block lists of all who hold references."""
        expected = Counter(block.id for blocks in users for block in blocks)
        for block in self._blocks:
            assert block.refs == expected[block.id], f"block {block.id}: {block.refs} refs, {expected[block.id]} users"
            queues = (block.id in self._free) + (block.id in self._dead)
            assert queues == (block.refs == 0), f"block {block.id}: used and free at once, or neither"
            if block.key is not None:
                doubles = self._doubles.get(block.key, {})
                found = self._cached.get(block.key) is block or doubles.get(block.id) is block
                assert found, f"block {block.id} has a key that finds nothing"
        without_content = [block.key is None for block in self._free.values()]
        assert without_content == [place < self._empty for place in range(len(self._free))], "empty blocks stand first"
        for key, block in self._cached.items():
            assert block.key == key, f"key {key.hex()} finds another's block"
        for key, doubles in self._doubles.items():
            assert doubles, f"key {key.hex()} is said to have doubles"
            assert all(block.key == key for block in doubles.values()), f"key {key.hex()} finds another's block"
            assert self._cached[key].id not in doubles, f"block {self._cached[key].id} is its own double"

    def _next_free(self) -> Block:
        if self._dead:
            first = next(iter(self._free.values()), None)
            if first is None or first.key is not None:
                return self._dead.popitem(last=False)[1]
        block = self._free.popitem(last=False)[1]
        self._empty -= block.key is None
        return block

    def _forget(self, block: Block) -> None:
        key, block.key = block.key, None
        assert key is not None
        doubles = self._doubles.get(key)
        if self._cached[key] is not block:
            assert doubles is not None
            del doubles[block.id]
        elif doubles:
            eldest = next(iter(doubles))
            self._cached[key] = doubles.pop(eldest)
        else:
            del self._cached[key]
        if doubles is not None and not doubles:
            del self._doubles[key]
