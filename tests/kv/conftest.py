from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from agentkv.kv import Directive, KVPolicy, PolicySettings
from agentkv.kv.duty import Duty


class Pool:
    """Blocks with reference counts, free ones in eviction order, as an engine's pool has them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.refs: Counter[int] = Counter()
        self.uncached = list(range(size))
        self.dead: list[int] = []
        self.cached: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        return len(self.uncached) + len(self.dead) + len(self.cached)

    def take(self, n: int) -> list[int]:
        """What a running request gets: blocks in eviction order, one reference each."""
        assert n <= self.free
        blocks = []
        for _ in range(n):
            if self.uncached:
                block = self.uncached.pop(0)
            elif self.dead:
                block = self.dead.pop(0)
            else:
                block = self.cached.popitem(last=False)[0]
            self.refs[block] += 1
            blocks.append(block)
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self.refs[block] == 0:
                self.cached.pop(block, None)
                self.dead = [each for each in self.dead if each != block]
                assert block not in self.uncached, "only cached blocks are held"
            self.refs[block] += 1

    def finish(self, blocks: Sequence[int]) -> None:
        """What a running request gives back."""
        self.let_go(blocks, dead=False)

    def hold(self, blocks: Sequence[int]) -> None:
        self.touch(blocks)

    def let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        freed = []
        for block in reversed(blocks):
            assert self.refs[block] > 0, "a reference was given back twice"
            self.refs[block] -= 1
            if self.refs[block] == 0:
                freed.append(block)
        if dead:
            self.dead = freed + self.dead
        else:
            self.cached.update(dict.fromkeys(freed))
        return len(freed)

    def ref_count(self, block: int) -> int:
        return self.refs[block]


class TwoTiers(Pool):
    """A pool with contents, and host memory beside it; transfers move contents when the test says so."""

    def __init__(self, size: int, slots: int) -> None:
        super().__init__(size)
        self.holds: dict[int, bytes] = {}
        self.names: dict[int, bytes] = {}
        self.slots: dict[int, bytes] = {}
        self.size_of_host = slots

    @property
    def free_blocks(self) -> int:
        return self.free

    def take(self, n: int) -> list[int]:
        blocks = super().take(n)
        for block in blocks:
            self.names.pop(block, None)
            self.holds.pop(block, None)
        return blocks

    def let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        freed = super().let_go(blocks, dead=dead)
        for block in blocks:
            if not self.refs[block] and block not in self.names:
                self.cached.pop(block, None)
                self.dead = [each for each in self.dead if each != block]
                self.uncached.insert(0, block)
        return freed

    def hold(self, blocks: Sequence[int]) -> None:
        # Those that were free for as long as the pool emptied its cache hold nothing that could be found.
        self.uncached = [each for each in self.uncached if each not in blocks]
        self.touch(blocks)

    def compute(self, blocks: Sequence[int], digests: Sequence[bytes]) -> None:
        """A request writes its blocks and makes them findable."""
        for block, digest in zip(blocks, digests, strict=True):
            self.holds[block] = self.names[block] = digest

    def enter(self, block: int, digest: bytes) -> None:
        assert self.refs[block], "only who has a block may name it"
        self.names[block] = digest

    def find(self, digest: bytes) -> int | None:
        return next((block for block, name in self.names.items() if name == digest), None)

    def carry_out(self, transfer: Any, failing: Sequence[int] = ()) -> None:
        """Copy what a transfer asks for, except the places that fail: there is garbage then."""
        for place, (block, slot) in enumerate(zip(transfer.blocks, transfer.slots, strict=True)):
            assert self.refs[block], "a transfer touches blocks that nobody holds"
            if transfer.kind == "demote":
                self.slots[slot] = self.holds.get(block, b"") if place not in failing else b"garbage"
            else:
                self.holds[block] = self.slots[slot] if place not in failing else b"garbage"

    def check_contents(self) -> None:
        for block, name in self.names.items():
            assert self.holds[block] == name, f"block {block} is found as what it is not"


class Bench:
    """A policy over a pool, with requests that run to their end at once."""

    def __init__(self, size: int = 100, **settings: Any) -> None:
        self.pool = Pool(size)
        tokens = count(1)
        self.policy = KVPolicy(
            PolicySettings(**settings),
            holder=self.pool,
            pool_blocks=size,
            block_size=16,
            engine_id="engine",
            mint=lambda: f"token-{next(tokens)}",
            bytes_per_block=1000,
        )

    @staticmethod
    def digests(blocks: Sequence[int]) -> list[bytes]:
        return [b"%d" % block for block in blocks]

    def run(self, n: int, now: float = 0.0, hits: Sequence[int] = (), **fields: Any) -> Any:
        """A request of ``n`` blocks, ``hits`` of which are cached: takes them, ends, leaves its lease."""
        directive = Directive(**{"run": "r", **fields})
        self.pool.touch(hits)
        blocks = [*hits, *self.pool.take(n - len(hits))]
        grant = self.policy.finish(directive, "q", blocks, self.digests(blocks), now)
        self.pool.finish(blocks)
        return grant

    def kinds(self) -> list[str]:
        return [record.kind for record in self.policy.records.events()[0]]


@pytest.fixture(scope="session")
def pool_class() -> type[Pool]:
    return Pool


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return Bench


@pytest.fixture(scope="session")
def bench_class() -> type[Bench]:
    return Bench


@pytest.fixture(scope="session")
def two_tiers() -> type[TwoTiers]:
    return TwoTiers


@pytest.fixture
def seen() -> Callable[..., Duty]:
    """Runs that worked and waited for so many seconds each."""

    def make(*, work: float, wait: float, runs: int = 20) -> Duty:
        duty, now = Duty(), 0.0
        for _ in range(runs):
            duty.began("r", now)
            duty.ended("r", now + work, admitted=True)
            now += work + wait
        return duty

    return make
