"""Bringing KV back from host memory: for requests that wait for it, and ahead of them where there is room."""

from collections.abc import Sequence

from attrs import define, evolve

from agentkv.kv.keeper import LeaseKeeper
from agentkv.kv.lease import Lease
from agentkv.kv.mover import Mover, TierPool
from agentkv.kv.order import in_order
from agentkv.kv.transfer import TransferRank
from agentkv.kv.worth import MoveCost

__all__ = ("Promoter",)

#: A part of a chain is fetched from this share on of what makes a chain worth fetching: its computing would hold up
#: everybody, its fetching nobody else.
SMALL = 0.25
#: Times that one request waits for copies before it goes on with what there is.
MAX_LOADS = 3


@define
class _Wait:
    since: float
    loads: int = 0
    blocks: int = 0
    lacks: int = 0


class Promoter:
    """Decides what comes back. ``waited_s`` is summed over the requests that waited; ``claims`` are those that wait
    for room, and the blocks that they lack.
    """

    def __init__(self, leases: LeaseKeeper, pool: TierPool, mover: Mover, cost: MoveCost) -> None:
        self.waited_s = 0.0
        self.claims: dict[str, int] = {}
        self._leases = leases
        self._table = leases.table
        self._pool = pool
        self._mover = mover
        self._cost = cost
        self._waits: dict[str, _Wait] = {}

    def wanted(
        self,
        request: str,
        digests: Sequence[bytes],
        hits: int,
        now: float,
        *,
        owner: str,
        lease: str | None,
        order: int,
    ) -> bool:
        """See ``Tier.wanted``."""
        wait = self._waits.get(request)
        if hits < len(digests) and digests[hits] in self._mover.loading:
            if wait is None:
                # Their loading was begun ahead of it, or for another.
                coming = sum(digest in self._mover.loading for digest in digests[hits:])
                self._waits[request] = _Wait(now, blocks=coming)
            return True
        if wait is not None and wait.lacks and any(name != request for name in self.claims):
            # Those before it have not found room in this step: nor will it.
            self.claims[request] = wait.lacks
            return True
        run = self._copies_from(digests, hits, owner)
        if wait is None and len(run) * self._leases.block_size < self._cost.least_tokens() * SMALL:
            return False
        if not run or (wait is not None and wait.loads >= MAX_LOADS):
            self._go_on(request, now)
            return False
        wait = self._waits.setdefault(request, _Wait(now))
        holders = self._mover.copies.holders(run[0])
        token = lease if lease in holders and lease is not None else min(holders)
        self._soon(token, now)
        if self.fetch(token, run, digests[:hits], request, "resume", order, now):
            wait.loads += 1
            wait.blocks += len(run)
            wait.lacks = 0
        else:
            wait.lacks = len(run)
        return True

    def away(self, digests: Sequence[bytes]) -> bool:
        """See ``Tier.away``."""
        if not len(self._mover.copies):
            return False
        missing = next((each for each in digests if self._pool.find(each) is None), None)
        return missing is not None and self._mover.copies.ready(missing)

    def forget(self, request: str) -> None:
        """A request has ended; loads that were begun for it go on for its lease."""
        self._waits.pop(request, None)
        self.claims.pop(request, None)

    def __len__(self) -> int:
        return len(self._waits)

    def fetch(
        self,
        token: str,
        run: Sequence[bytes],
        head: Sequence[bytes],
        request: str,
        rank: TransferRank,
        order: int,
        now: float,
    ) -> bool:
        """Begin to load ``run``, which follows ``head`` in its chain; whether there was room for it."""
        before = sum(lacks for name, lacks in self.claims.items() if name != request)
        short = len(run) + before - self._pool.free_blocks
        if short > 0 and rank == "resume" and not before:
            protect = frozenset(block for each in head if (block := self._pool.find(each)) is not None)
            self._leases.make_room(short, now, for_whom=request, protect=protect, may_wait=True)
            short = len(run) - self._pool.free_blocks
        if short > 0:
            if request:
                self.claims[request] = len(run)
            return False
        self.claims.pop(request, None)
        # Room in the pool may have been made at the cost of these very copies.
        ready = self._mover.copies.ready
        run = run[: next((i for i, digest in enumerate(run) if not ready(digest)), len(run))]
        self._mover.load(token, self._take(len(run), head), run, rank, request, order, now)
        return True

    def _take(self, count: int, head: Sequence[bytes]) -> list[int]:
        """Blocks for a load, none of them the start of the same chain as long as there are others."""
        found = (self._pool.find(digest) for digest in head)
        start = [block for block in found if block is not None and not self._pool.ref_count(block)]
        spared = start[: max(0, self._pool.free_blocks - count)]
        self._pool.hold(spared)
        taken = self._pool.take(count)
        self._pool.let_go(spared, dead=False)
        return taken

    def bring_back(self, lease: Lease, room: int, now: float) -> None:
        """Load what of a lease is away, ahead of need, if it fits into ``room`` free blocks."""
        if 0 < len(lease.away) <= room:
            self.fetch(lease.token, lease.away, lease.digests[: len(lease.blocks)], "", "ahead", 0, now)

    def next_back(self, leave_out: set[str]) -> Lease | None:
        """The lease that is wanted soonest of those that are away."""
        away = (each for each in self._table if each.away and each.token not in leave_out)
        order = in_order(each for each in away if each.lease_class != "speculative")
        return order[-1] if order else None

    def attach(self, token: str, now: float) -> None:
        """Have a lease hold those of its contents that are back in the pool, as far as its budget allows."""
        lease = self._table.get(token)
        if lease is None:
            return
        found: list[int] = []
        for digest in lease.away:
            block = self._pool.find(digest)
            if block is None:
                break
            found.append(block)
        self._leases.spare_budget(token, found, now, "")
        found = found[: self._table.fitting(found)]
        if found:
            self._table.extend(lease, found)

    def _copies_from(self, digests: Sequence[bytes], start: int, owner: str) -> list[bytes]:
        """The contents from ``start`` on that have copies, up to the first that has none, if they are this owner's."""
        copies = self._mover.copies
        found: list[bytes] = []
        for digest in digests[start:] if len(copies) else ():
            if not copies.ready(digest):
                break
            found.append(digest)
        holders = map(self._table.get, copies.holders(found[0])) if found else ()
        return found if any(lease is not None and lease.owner == owner for lease in holders) else []

    def _soon(self, token: str, now: float) -> None:
        """The lease is wanted now: among chains it is the last to go."""
        lease = self._table.get(token)
        if lease is not None and (lease.expected_reuse is None or lease.expected_reuse > now):
            self._table.amend(evolve(lease, expected_reuse=now))

    def _go_on(self, request: str, now: float) -> None:
        self.claims.pop(request, None)
        wait = self._waits.pop(request, None)
        if wait is not None:
            self.waited_s += now - wait.since
            ms = (now - wait.since) * 1000
            self._leases.records.add("tier.wait", now, blocks=wait.blocks, for_whom=request, ms=ms)
