"""Copying waiting chains to host memory, so that they can leave the pool without loss."""

from collections import Counter

from agentkv.kv.keeper import LeaseKeeper
from agentkv.kv.lease import Lease, common_length
from agentkv.kv.mover import Mover, TierPool
from agentkv.kv.order import eviction_key
from agentkv.kv.transfer import TransferRank
from agentkv.kv.worth import MoveCost

__all__ = ("Demoter",)


class Demoter:
    """Decides which blocks get copies. ``asleep`` are leases that a client asked to have out of the pool."""

    def __init__(self, leases: LeaseKeeper, pool: TierPool, mover: Mover, cost: MoveCost) -> None:
        self.asleep: set[str] = set()
        self._leases = leases
        self._table = leases.table
        self._pool = pool
        self._mover = mover
        self._cost = cost
        self._floors: dict[str, int] = {}
        # How many leases name a block, those apart whose KV was computed on a guess and may go at any time.
        self._named: dict[str, tuple[int, ...]] = {}
        self._names: Counter[int] = Counter()

    def floor(self, lease: Lease) -> int:
        """See ``Parking``: blocks behind the floor have copies, or are recomputed sooner than they are fetched."""
        if lease.lease_class == "speculative":
            return 0
        if lease.lease_class == "anchor":
            return len(lease.blocks)
        known = self._floors.get(lease.token)
        if known is None:
            known = self._floors[lease.token] = 0 if self.is_short(lease) else self._copied_from(lease)
        return known

    def changed(self, token: str) -> None:
        """A lease's copies are not what they were."""
        self._floors.pop(token, None)

    def follow(self, token: str, lease: Lease | None) -> None:
        """A lease is not what it was; None: it is gone."""
        self._floors.pop(token, None)
        if lease is None:
            self.asleep.discard(token)
        counts = lease is not None and lease.lease_class != "speculative"
        before, now = self._named.pop(token, ()), lease.blocks if lease is not None and counts else ()
        same = common_length(before, now)
        self._names.subtract(before[same:])
        self._names.update(now[same:])
        if now:
            self._named[token] = now

    def forget(self) -> None:
        """Host memory is empty."""
        self._floors.clear()
        self.asleep.clear()

    def clean(self) -> int:
        """Blocks of waiting chains that could leave the pool now without loss."""
        return sum(len(lease.blocks) - self.floor(lease) for lease in self._table if self._waits(lease))

    def store(self, blocks: int, rank: TransferRank, for_whom: str, now: float) -> int:
        """Begin to copy waiting chains, first to go first, until ``blocks`` will have copies; returns how many."""
        got = 0
        for lease in list(self._table.in_order()) if blocks > 0 else ():
            if got >= blocks:
                break
            if self._waits(lease) and lease.token not in self._mover.storing and not self.is_short(lease):
                got += self.copy(lease, rank, for_whom, now)
        return got

    def copy(self, lease: Lease, rank: TransferRank, for_whom: str, now: float) -> int:
        """Begin to copy those of a lease's own blocks that have no copy; returns how many.

        Where host memory does not suffice for all of them, those at the end of the chain.
        """
        has = self._mover.copies.has
        own = range(self._own_from(lease), len(lease.blocks))
        missing = [place for place in own if not has(lease.digests[place])]
        if missing:
            self._make_host_room(len(missing), lease, now)
            missing = missing[max(0, len(missing) - self._mover.copies.free) :]
        if missing:
            blocks, digests = [lease.blocks[i] for i in missing], [lease.digests[i] for i in missing]
            self._mover.store(lease.token, blocks, digests, rank, for_whom, now)
        return len(missing)

    def leave(self, token: str, now: float) -> None:
        """Take a lease that is asleep out of the pool, as far as its own blocks have copies."""
        lease = self._table.get(token)
        if lease is not None and self._waits(lease) and token not in self._mover.storing:
            keep = max(self._own_from(lease), self._copied_from(lease))
            if keep < len(lease.blocks):
                self._leases.park(lease, keep, now)

    def is_short(self, lease: Lease) -> bool:
        """Whether what only this lease holds is recomputed sooner than it is fetched."""
        tokens = (len(lease.digests) - self._own_from(lease)) * self._leases.block_size
        return tokens < self._cost.least_tokens()

    def _make_host_room(self, slots: int, newcomer: Lease, now: float) -> None:
        """Give up copies for those of ``newcomer``: of what is in the pool too, then of what goes before it."""
        copies = self._mover.copies
        if copies.free >= slots:
            return
        order = list(self._table.in_order())
        for lease in reversed(order):
            if lease.token != newcomer.token:
                resident = lease.digests[: len(lease.blocks)]
                copies.spare(lease.token, reversed(resident), slots - copies.free)
                self.changed(lease.token)
            if copies.free >= slots:
                return
        for lease in order:
            if copies.free >= slots or eviction_key(lease) >= eviction_key(newcomer):
                return
            if lease.away:
                reach = max(len(lease.blocks), len(lease.digests) - (slots - copies.free))
                self._leases.cut_away(lease, reach, now, newcomer.run)

    def _waits(self, lease: Lease) -> bool:
        """Whether nobody but leases refers to the end of a chain, so that it would become free."""
        movable = lease.lease_class in ("chain", "branch") and bool(lease.blocks)
        return movable and self._pool.ref_count(lease.blocks[-1]) == 1

    def _own_from(self, lease: Lease) -> int:
        """Where the blocks begin that no other lease counts on."""
        names = self._names
        return next((i + 1 for i in range(len(lease.blocks) - 1, -1, -1) if names[lease.blocks[i]] > 1), 0)

    def _copied_from(self, lease: Lease) -> int:
        """Where the last of the lease's blocks begin that all have copies."""
        ready = self._mover.copies.ready
        places = range(len(lease.blocks) - 1, -1, -1)
        return next((i + 1 for i in places if not ready(lease.digests[i])), 0)
