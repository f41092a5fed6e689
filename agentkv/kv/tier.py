"""The second tier: which KV of waiting chains goes to host memory, when it comes back, and who waits for it.

Leases say what is wanted again and when. While the pool is short, chains that wait are copied ahead of need, in the
one eviction order; what has a copy leaves the pool at once when room is needed, without loss. When its tool has
returned, a chain's request waits for its own blocks and for nothing else; chains that are wanted soonest come back
ahead of that as far as there is room that nobody else needs.
"""

from collections.abc import Sequence
from typing import Any

from agentkv.kv.demote import Demoter
from agentkv.kv.keeper import LeaseKeeper
from agentkv.kv.lease import Lease
from agentkv.kv.mover import Mover, TierPool
from agentkv.kv.promote import Promoter
from agentkv.kv.transfer import Transfer
from agentkv.kv.worth import MoveCost

__all__ = ("Tier", "open_tier", "stores_avoided")

UNKNOWN = "lease: no such token"
#: Bytes to a transfer, and of transfers that may be under way one way: what a later one has to wait for.
CHUNK_BYTES = 1 << 27
WINDOW_BYTES = 1 << 29


def open_tier(leases: LeaseKeeper, pool: TierPool, slots: int, pool_blocks: int, reserve: float) -> "Tier":
    """The second tier of a pool, ``slots`` blocks large; it puts itself behind ``leases``."""
    size = max(1, leases.records.bytes_per_block)
    mover = Mover(pool, slots, chunk=max(1, CHUNK_BYTES // size), window=max(1, WINDOW_BYTES // size))
    cost = MoveCost(size // leases.block_size)
    return Tier(leases, pool, mover, cost, pool_blocks=pool_blocks, reserve=reserve)


class Tier:
    """Owns the decisions about one engine's second tier. ``now`` is engine seconds; nothing here raises.

    ``reserve``: share of the pool that is to be free, or free to go without loss, ahead of need. Whoever drives it
    carries out the transfers that ``start`` returns, calls ``done`` for each, ``tick`` now and then, and
    ``wanted`` before it starts a request.
    """

    def __init__(
        self, leases: LeaseKeeper, pool: TierPool, mover: Mover, cost: MoveCost, *, pool_blocks: int, reserve: float
    ) -> None:
        self.mover = mover
        self.cost = cost
        self._leases = leases
        self._table = leases.table
        self._pool = pool
        self._reserve = int(reserve * pool_blocks)
        self._out = Demoter(leases, pool, mover, cost)
        self._back = Promoter(leases, pool, mover, cost)
        self._uses: dict[str, str] = {}
        self._failed = 0
        # Whether a request lacked room since the last tick, promised or not: what is free until then is meant for it.
        self._promised = False
        self._moved = {"demote": 0, "promote": 0}
        self._table.watch = self._follow
        leases.parking = self

    # Making room (``Parking``)

    def floor(self, lease: Lease) -> int:
        """See ``Parking``."""
        return self._out.floor(lease)

    def reach(self, digests: Sequence[bytes], keep: int) -> int:
        """See ``Parking``."""
        ready = self.mover.copies.ready
        return next((i for i in range(keep, len(digests)) if not ready(digests[i])), len(digests))

    def relieve(self, deficit: int, for_whom: str, now: float) -> bool:
        """See ``Parking``: stores what it takes, unless enough is on its way.

        Where no chain waits that could be stored, those of requests that run can when these end, if host memory has
        room for them.
        """
        under_way = sum(self.mover.storing.values())
        coming = under_way + self._out.store(deficit - under_way, "room", for_whom, now) > 0
        promised = coming or (self.mover.copies.free >= deficit and self._out.engaged())
        self._promised |= promised
        return promised

    def short(self) -> None:
        """See ``Parking``."""
        self._promised = True

    # Requests

    def wanted(
        self,
        request: str,
        digests: Sequence[bytes],
        hits: int,
        now: float,
        *,
        owner: str,
        lease: str | None = None,
        order: int = 0,
    ) -> bool:
        """Whether a request is to wait for its KV, which comes from host memory; asked each time it might start.

        ``digests`` name the full blocks that it could start on, of which the first ``hits`` are in the pool.
        ``lease`` is the token that it builds on, ``owner`` whose copies it may use; ``order`` as in directives.
        """
        return self._back.wanted(request, digests, hits, now, owner=owner, lease=lease, order=order)

    def arrived(self, request: str, lease: str | None) -> None:
        """A request has come; the chain of the lease that it builds on does not wait any more, until ``forget``."""
        if lease is not None:
            self._uses[request] = lease
            self._out.use(lease)

    def away(self, digests: Sequence[bytes]) -> bool:
        """Whether a chain's next content is in host memory alone, so that computing it ahead would repeat work."""
        return self._back.away(digests)

    def forget(self, request: str) -> None:
        """A request has ended; loads that were begun for it go on for its lease."""
        self._back.forget(request)
        if (lease := self._uses.pop(request, None)) is not None:
            self._out.use_no_more(lease)

    @property
    def claimed(self) -> int:
        """Blocks that requests lack whose KV waits to come back, as of those asked about since the last ``tick``.

        Nothing cold that stands behind them starts on the room they wait for.
        """
        return sum(self._back.claims.values())

    # Asked for by a client

    def demote(self, token: str, now: float) -> str | None:
        """Have a lease's own blocks leave the pool, once they are copied; None or the reason why not."""
        lease = self._table.get(token)
        if lease is None:
            return UNKNOWN
        if lease.lease_class in ("anchor", "speculative"):
            return f"class: {lease.lease_class} leases are not demoted"
        if self._out.is_short(lease):
            return "length: so short a chain is recomputed sooner than it is fetched"
        self._out.asleep.add(token)
        self._out.copy(lease, "ahead", "", now)
        self._out.leave(token, now)
        return None

    def promote(self, token: str, now: float) -> str | None:
        """Have a lease's blocks come back; None or the reason why not."""
        lease = self._table.get(token)
        if lease is None:
            return UNKNOWN
        self._out.asleep.discard(token)
        if not lease.away or lease.away[0] in self.mover.loading:
            return None
        self._back.bring_back(lease, self._pool.free_blocks, now)
        return None if lease.away[0] in self.mover.loading else "room: the pool has none for it now"

    # Time

    def tick(self, now: float) -> None:
        """Copy ahead of need while the pool is short; bring back what is wanted soonest while it is not.

        To be called before requests are looked at for a step.
        """
        claimed, self._promised = bool(self._back.claims) or self._promised, False
        self._back.claims.clear()
        if not self._table:
            return
        self._out.leave_late(now)
        if self._table.held > self._table.budget:
            *_, last = self._table.in_order()
            self._leases.spare_budget(last.token, (), now, "")
        spare = min(self._pool.free_blocks, self._table.budget - self._table.held)
        if spare < self._reserve:
            lacking = self._reserve - spare - self._out.clean() - sum(self.mover.storing.values())
            # No more than can begin: what is decided later is decided better, and a step is not held up by it.
            can_begin = self.mover.queue.window - self.mover.queue.waiting("demote")
            self._out.store(min(lacking, can_begin), "ahead", "", now)
        elif not claimed and not self.mover.loading:
            lease = self._back.next_back(self._out.asleep)
            if lease is not None:
                self._back.bring_back(lease, spare - self._reserve, now)

    def start(self) -> list[Transfer]:
        """The transfers to begin now."""
        return self.mover.queue.start()

    @property
    def busy(self) -> bool:
        """Whether transfers wait or are under way."""
        return len(self.mover.queue) > 0

    def done(self, number: int, failed: frozenset[int], seconds: float, now: float) -> None:
        """A transfer has ended after ``seconds`` of moving; ``failed`` are the places in it that did not arrive."""
        transfer = self.mover.end(number, failed)
        if transfer is None:
            return
        self.cost.fetched(self._leases.records.bytes_per_block * len(transfer.blocks), seconds)
        self._note(transfer, failed, now)
        self._out.changed(transfer.token)
        if transfer.kind == "promote":
            self._back.attach(transfer.token, now)
            if failed:
                self._lose(now)
        self.mover.settle(transfer)
        self._out.leave(transfer.token, now)

    def reset(self) -> None:
        """Forget all that is in host memory."""
        self.mover.reset()
        self._out.forget()

    def stats(self) -> dict[str, Any]:
        """Counters as a JSON object, in blocks; ``tier_waited_s`` is summed over the requests that waited.

        ``tier_totals``, since the start: blocks ``copied`` out and ``fetched``; ``left``, that left the pool without
        loss; ``stores_avoided``, those of them that had a copy from before; requests that ``waits`` counts, and their
        ``waited_ms``.
        """
        copies, queue = self.mover.copies, self.mover.queue
        return {
            "tier_slots": copies.slots,
            "tier_used": copies.slots - copies.free,
            "tier_away": sum(len(lease.away) for lease in self._table),
            "tier_moving": {kind: queue.under_way(kind) + queue.waiting(kind) for kind in ("demote", "promote")},
            "tier_waiting": len(self._back),
            "tier_waited_s": self._back.waited_s,
            "tier_failed": self._failed,
            "tier_totals": self._totals(),
            "tier_bandwidth": self.cost.bandwidth,
            "tier_least_tokens": self.cost.least_tokens(),
        }

    def occupancy(self) -> dict[str, int]:
        """Blocks of host memory by what they hold: what is ``away`` from the pool, what is in it too, nothing."""
        copies = self.mover.copies
        used = copies.slots - copies.free
        away = min(used, sum(len(lease.away) for lease in self._table))
        return {"away": away, "also in the pool": used - away, "free": copies.free}

    def _lose(self, now: float) -> None:
        """Copies turned out bad: no lease counts on them, nor on what follows them."""
        for lease in self._table:
            reach = self.reach(lease.digests, len(lease.blocks))
            self._out.changed(lease.token)
            if reach < len(lease.digests):
                self._leases.cut_away(lease, reach, now, "")

    def _totals(self) -> dict[str, int]:
        records = self._leases.records
        left = sum(blocks for kind, blocks in records.blocks.items() if kind.startswith("lease.demote"))
        return {
            "copied": self._moved["demote"],
            "fetched": self._moved["promote"],
            "left": left,
            "stores_avoided": stores_avoided(left=left, copied=self._moved["demote"]),
            "waits": records.counts["tier.wait"],
            "waited_ms": round(self._back.waited_s * 1000),
        }

    def _follow(self, token: str, lease: Lease | None) -> None:
        self._out.follow(token, lease)
        if lease is None:
            self.mover.copies.follow(token, ())
        else:
            self.mover.copies.follow(token, lease.digests, len(lease.blocks))

    def _note(self, transfer: Transfer, failed: frozenset[int], now: float) -> None:
        lease = self._table.get(transfer.token)
        about: dict[str, Any] = {"reason": transfer.kind, "for_whom": transfer.for_whom}
        if lease is not None:
            about |= {"run": lease.run, "owner": lease.owner}
        self._moved[transfer.kind] += len(transfer.blocks) - len(failed)
        records, ms = self._leases.records, (now - transfer.asked) * 1000
        records.add("transfer", now, blocks=len(transfer.blocks) - len(failed), ms=ms, **about)
        if failed:
            self._failed += len(failed)
            records.add("tier.fail", now, blocks=len(failed), **about)


def stores_avoided(*, left: int, copied: int) -> int:
    """How many of the blocks that ``left`` the pool without loss had a copy already, with ``copied`` out meanwhile.

    At least 0: some of what is copied in a window leaves behind it, and is not taken from what was avoided.
    """
    return max(0, left - copied)
