"""Copying waiting chains to host memory, so that they can leave the pool without loss."""

from collections import Counter

from agentkv.common_prefix import common_prefix
from agentkv.kv.keeper import LeaseKeeper
from agentkv.kv.lease import Lease
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
        # What was worked out for leases, by token, until they or what they share change.
        self._floors: dict[str, int] = {}
        self._own: dict[str, int] = {}
        # How many leases name a block, those apart whose KV was computed on a guess and may go at any time.
        self._named: dict[str, tuple[int, ...]] = {}
        self._digests: dict[str, tuple[bytes, ...]] = {}
        self._names: Counter[int] = Counter()
        # Whether host memory could not be made room in without loss, as of the last attempt.
        self._full = False
        # Of those asleep, the leases that could not leave: a request used them.
        self._late: set[str] = set()
        # Requests that build on a lease, by its token, from their arrival to their end.
        self._users: Counter[str] = Counter()

    def floor(self, lease: Lease) -> int:
        """See ``Parking``: blocks behind the floor have copies, or are recomputed sooner than they are fetched."""
        if lease.lease_class == "speculative":
            return 0
        if lease.lease_class == "anchor" or lease.token in self._users:
            return len(lease.blocks)
        known = self._floors.get(lease.token)
        if known is None:
            known = self._floors[lease.token] = 0 if self.is_short(lease) else self._copied_from(lease)
        return known

    def use(self, token: str) -> None:
        """A request has arrived that builds on a lease: it needs what is in the pool of it, and soon."""
        self.asleep.discard(token)
        self._users[token] += 1

    def use_no_more(self, token: str) -> None:
        """Such a request has ended."""
        self._users[token] -= 1
        if self._users[token] <= 0:
            del self._users[token]

    def changed(self, token: str) -> None:
        """A lease's copies are not what they were."""
        self._floors.pop(token, None)

    def follow(self, token: str, lease: Lease | None) -> None:
        """A lease is not what it was; None: it is gone."""
        if lease is None:
            self.asleep.discard(token)
            self._late.discard(token)
        counts = lease is not None and lease.lease_class != "speculative"
        before, now = self._named.get(token, ()), lease.blocks if lease is not None and counts else ()
        digests = lease.digests if lease is not None else ()
        # Most changes are renewals, in every step of many runs.
        if before is now and self._digests.get(token) is digests:
            return
        self._floors.pop(token, None)
        self._own.pop(token, None)
        self._count(before, now)
        self._named[token], self._digests[token] = now, digests
        if lease is None:
            del self._named[token], self._digests[token]

    def _count(self, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        """A lease names the blocks ``now`` that named those ``before``."""
        names, same, shared = self._names, common_prefix(before, now), False
        for block in before[same:]:
            names[block] -= 1
            shared |= names[block] == 1
            if not names[block]:
                del names[block]
        for block in now[same:]:
            names[block] += 1
            shared |= names[block] == 2
        if shared:
            self._own.clear()

    def forget(self) -> None:
        """Host memory is empty."""
        self._floors.clear()
        self.asleep.clear()
        self._late.clear()

    def engaged(self) -> bool:
        """Whether a request runs on a leased chain, which can be copied when it ends."""
        return any(lease.blocks and self._pool.ref_count(lease.blocks[-1]) > 1 for lease in self._table)

    def clean(self) -> int:
        """Blocks of waiting chains that could leave the pool now without loss."""
        return sum(len(lease.blocks) - self.floor(lease) for lease in self._table if self._waits(lease))

    def store(self, blocks: int, rank: TransferRank, for_whom: str, now: float) -> int:
        """Begin to copy waiting chains, first to go first, until ``blocks`` will have copies; returns how many."""
        got, self._full = 0, False
        for lease in list(self._table.in_order()) if blocks > 0 else ():
            if got >= blocks or (rank == "ahead" and self._full):
                break
            if self._waits(lease) and lease.token not in self._mover.storing and self._lacks_copies(lease):
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
            self._make_host_room(len(missing), lease, now, lose=rank != "ahead")
            missing = missing[max(0, len(missing) - self._mover.copies.free) :]
        if missing:
            blocks, digests = [lease.blocks[i] for i in missing], [lease.digests[i] for i in missing]
            self._mover.store(lease.token, blocks, digests, rank, for_whom, now)
        return len(missing)

    def leave(self, token: str, now: float) -> None:
        """Take a lease that is asleep out of the pool, as far as its own blocks have copies, or later if it is used."""
        self._late.discard(token)
        lease = self._table.get(token) if token in self.asleep else None
        if lease is None or not lease.blocks or token in self._mover.storing:
            return
        if not self._waits(lease):
            self._late.add(token)
            return
        keep = max(self._own_from(lease), self._copied_from(lease))
        if keep < len(lease.blocks):
            self._leases.park(lease, keep, now)

    def leave_late(self, now: float) -> None:
        """Take out of the pool what was in use when it was to leave."""
        for token in tuple(self._late):
            self.leave(token, now)

    def is_short(self, lease: Lease) -> bool:
        """Whether what only this lease holds is recomputed sooner than it is fetched."""
        tokens = (len(lease.digests) - self._own_from(lease)) * self._leases.block_size
        return tokens < self._cost.least_tokens()

    def _lacks_copies(self, lease: Lease) -> bool:
        """Whether a lease's own blocks are worth copies and do not all have one."""
        return self.floor(lease) > self._own_from(lease)

    def _make_host_room(self, slots: int, newcomer: Lease, now: float, *, lose: bool) -> None:
        """Give up copies for those of ``newcomer``: of what is in the pool too; to ``lose``, of what goes before it.

        Those of what is in the pool only if it goes after ``newcomer``, else each would give up the other's for ever;
        of any of it for a chain that a client asked to have out of the pool.
        """
        copies = self._mover.copies
        if copies.free >= slots:
            return
        order = list(self._table.in_order())
        for lease in reversed(order):
            if copies.free >= slots:
                return
            if lease.token == newcomer.token:
                if newcomer.token not in self.asleep:
                    break
                continue
            if copies.count(lease.token) > len(lease.away):
                copies.spare(lease.token, lease.digests[: len(lease.blocks)], slots - copies.free)
                self.changed(lease.token)
        self._full = not copies.free
        for lease in order if lose else ():
            if copies.free >= slots or eviction_key(lease) >= eviction_key(newcomer):
                return
            if lease.away:
                reach = max(len(lease.blocks), len(lease.digests) - (slots - copies.free))
                self._leases.cut_away(lease, reach, now, newcomer.run)

    def _waits(self, lease: Lease) -> bool:
        """Whether nobody but leases refers to the end of a chain, so that it would become free."""
        movable = lease.lease_class in ("chain", "branch") and bool(lease.blocks)
        return movable and lease.token not in self._users and self._pool.ref_count(lease.blocks[-1]) == 1

    def _own_from(self, lease: Lease) -> int:
        """Where the blocks begin that no other lease counts on."""
        known = self._own.get(lease.token)
        if known is None:
            names, blocks = self._names, lease.blocks
            places = range(len(blocks) - 1, -1, -1)
            known = self._own[lease.token] = next((i + 1 for i in places if names[blocks[i]] > 1), 0)
        return known

    def _copied_from(self, lease: Lease) -> int:
        """Where the last of the lease's blocks begin that all have copies."""
        ready = self._mover.copies.ready
        places = range(len(lease.blocks) - 1, -1, -1)
        return next((i + 1 for i in places if not ready(lease.digests[i])), 0)
