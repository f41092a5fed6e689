"""What is copied between the pool and host memory: blocks and slots that transfers hold until they have ended."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from attrs import evolve

from agentkv.kv.copies import HostCopies
from agentkv.kv.lease import BlockHolder
from agentkv.kv.transfer import Transfer, TransferQueue, TransferRank

__all__ = ("Mover", "TierPool")


class TierPool(BlockHolder, Protocol):
    """A pool whose blocks can be filled from elsewhere. Block ids are the pool's own."""

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody refers to, cached ones included."""
        ...

    def take(self, count: int) -> list[int]:
        """Blocks with one reference each; ``count`` of them must be free."""
        ...

    def enter(self, block: int, digest: bytes) -> None:
        """Make a block that was taken findable by its content."""
        ...

    def find(self, digest: bytes) -> int | None:
        """A block with this content, whoever uses it."""
        ...


class Mover:
    """Owns copies and transfers. ``chunk``: most blocks to a transfer; ``window`` as in ``TransferQueue``.

    Whoever drives it carries out what ``start`` returns and says so by ``end``.
    """

    def __init__(self, pool: TierPool, slots: int, *, chunk: int = 64, window: int = 512) -> None:
        self.copies = HostCopies(slots)
        self.queue = TransferQueue(window)
        self.loading: dict[bytes, int] = {}
        self.storing: dict[str, int] = {}
        self._pool = pool
        self._chunk = chunk
        self._number = 0
        self._void: set[int] = set()

    def store(
        self, token: str, blocks: Sequence[int], digests: Sequence[bytes], rank: TransferRank, for_whom: str, now: float
    ) -> None:
        """Have blocks of a lease copied to host memory, where there must be as many free slots."""
        slots = self.copies.reserve(token, digests)
        self._pool.hold(blocks)
        self.storing[token] = self.storing.get(token, 0) + len(blocks)
        self._push(
            Transfer(
                number=0,
                kind="demote",
                rank=rank,
                blocks=tuple(blocks),
                slots=tuple(slots),
                digests=tuple(digests),
                token=token,
                for_whom=for_whom,
                asked=now,
            )
        )

    def load(
        self,
        token: str,
        blocks: Sequence[int],
        digests: Sequence[bytes],
        rank: TransferRank,
        for_whom: str,
        order: int,
        now: float,
    ) -> None:
        """Have copies written to ``blocks``, which were taken from the pool for this."""
        slots = self.copies.pin(digests)
        self._push(
            Transfer(
                number=0,
                kind="promote",
                rank=rank,
                blocks=tuple(blocks),
                slots=tuple(slots),
                digests=tuple(digests),
                token=token,
                for_whom=for_whom,
                order=order,
                asked=now,
            )
        )

    def _push(self, whole: Transfer) -> None:
        """Queue a transfer in parts of at most a chunk, each under a number of its own."""
        for start in range(0, len(whole.blocks), self._chunk):
            place = slice(start, start + self._chunk)
            self._number += 1
            part = evolve(
                whole,
                number=self._number,
                blocks=whole.blocks[place],
                slots=whole.slots[place],
                digests=whole.digests[place],
            )
            if part.kind == "promote":
                self.loading.update(dict.fromkeys(part.digests, part.number))
            self.queue.push(part)

    def end(self, number: int, failed: frozenset[int]) -> Transfer | None:
        """A transfer has ended; ``failed`` are the places in it that did not arrive. None if it was called off.

        What was loaded can be found in the pool from now on; the references on its blocks are the caller's to
        give back (``settle``), after it has taken its own.
        """
        transfer = self.queue.end(number)
        if transfer is None:
            return None
        void = number in self._void
        self._void.discard(number)
        arrived = [not void and place not in failed for place in range(len(transfer.blocks))]
        if transfer.kind == "demote":
            self._stored(transfer, arrived, void=void)
        else:
            self._loaded(transfer, arrived, void=void)
        if not void:
            return transfer
        if transfer.kind == "promote":
            self._pool.let_go(transfer.blocks, dead=True)
        return None

    def settle(self, transfer: Transfer) -> None:
        """Give back the references that a transfer held on the pool's blocks."""
        self._pool.let_go(transfer.blocks, dead=False)

    def held_blocks(self) -> list[int]:
        """The pool's blocks on which transfers hold a reference each, one entry to a reference."""
        moving = [*self.queue.going(), *self.queue.not_begun()]
        called_off = {each.number for each in moving if each.kind == "demote"} & self._void
        return [block for each in moving if each.number not in called_off for block in each.blocks]

    def reset(self) -> None:
        """Forget all copies, as the pool's content is about to be forgotten.

        Blocks that are read are let go of at once, since what comes of it is thrown away; those that are written
        stay taken until that has ended.
        """
        for transfer in self.queue.withdraw():
            self._call_off(transfer)
        for transfer in self.queue.going():
            if transfer.number in self._void:
                continue
            self._void.add(transfer.number)
            if transfer.kind == "demote":
                self._pool.let_go(transfer.blocks, dead=True)
        self.storing.clear()
        self.copies.clear()

    @contextmanager
    def emptying(self) -> Iterator[None]:
        """While the pool empties its cache, after ``reset``: blocks that are still written count as free.

        Nothing can be found in them, now or later; nobody may take blocks meanwhile.
        """
        written = self.held_blocks()
        self._pool.let_go(written, dead=True)
        try:
            yield
        finally:
            self._pool.hold(written)

    def _call_off(self, transfer: Transfer) -> None:
        for digest, slot in zip(transfer.digests, transfer.slots, strict=True):
            if transfer.kind == "demote":
                self.copies.written(digest, slot, good=False)
            else:
                self.copies.unpin(digest, slot)
                self._no_longer_loading(digest, transfer.number)
        self._pool.let_go(transfer.blocks, dead=True)

    def _stored(self, transfer: Transfer, arrived: Sequence[bool], *, void: bool) -> None:
        for digest, slot, good in zip(transfer.digests, transfer.slots, arrived, strict=True):
            self.copies.written(digest, slot, good=good)
        if not void:
            left = self.storing.get(transfer.token, 0) - len(transfer.blocks)
            self.storing[transfer.token] = left
            if left <= 0:
                del self.storing[transfer.token]

    def _loaded(self, transfer: Transfer, arrived: Sequence[bool], *, void: bool) -> None:
        for block, digest, slot, good in zip(transfer.blocks, transfer.digests, transfer.slots, arrived, strict=True):
            self.copies.unpin(digest, slot)
            self._no_longer_loading(digest, transfer.number)
            if good:
                self._pool.enter(block, digest)
            elif not void and self.copies.has(digest) and self.copies.slot(digest) == slot:
                # It did not arrive once: it is not asked for again.
                self.copies.discard(digest)

    def _no_longer_loading(self, digest: bytes, number: int) -> None:
        if self.loading.get(digest) == number:
            del self.loading[digest]
