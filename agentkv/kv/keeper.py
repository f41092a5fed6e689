"""Taking, renewing, releasing and revoking leases, within the budget and in the one order; each step is recorded."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from attrs import evolve

from agentkv.kv.directive import Directive, LeaseClass
from agentkv.kv.grant import Grant
from agentkv.kv.handle import KVHandle
from agentkv.kv.lease import Lease, LeaseTable
from agentkv.kv.order import CacheMode, eviction_key
from agentkv.kv.parking import NO_PARKING, Parking
from agentkv.kv.record import Recorder, RecordKind
from agentkv.kv.room import HOPELESS_SECONDS, Cut, RoomPlanner

__all__ = ("LeaseKeeper",)

UNKNOWN_LEASE = "lease: no such token"
NO_BLOCKS: frozenset[int] = frozenset()


class LeaseKeeper:
    """Owns what leases mean: who may change one, what gives way to one, and what is written down about it.

    ``engine_id`` and ``block_size`` (tokens) go into handles; ``mint`` returns a fresh unguessable token each
    time. ``retry_seconds``: for how long leases that could not make room are not asked again. ``parking`` is where
    KV can be that is not in the pool. Refusals are returned as reasons and recorded, never raised. ``now`` is
    engine seconds.
    """

    def __init__(
        self,
        table: LeaseTable,
        records: Recorder,
        *,
        engine_id: str,
        block_size: int,
        mint: Callable[[], str],
        mode: CacheMode = "hybrid",
        retry_seconds: float = HOPELESS_SECONDS,
    ) -> None:
        self.table = table
        self.planner = RoomPlanner(table, retry_seconds)
        self.records = records
        self.engine_id = engine_id
        self.block_size = block_size
        self.epoch = 0
        self.classes: Counter[str] = Counter()
        self.parking: Parking = NO_PARKING
        self._mint = mint
        self._mode = mode
        self._serial = 0

    def grant(
        self, directive: Directive, blocks: Sequence[int], digests: Sequence[bytes], now: float, request: str = ""
    ) -> Grant:
        """Take or extend the lease of a request that ends, on its ``blocks``: full, cached, in chain order."""
        if (reason := self._no_grant(directive, blocks)) is not None:
            return Grant(offered=len(blocks), reason=reason)
        old = self._extended(directive, now)
        lease = self._shape(directive, old, blocks, digests, now)
        fitting = self._fit_budget(lease, old, directive.kind == "prefill", now, request)
        if fitting == 0:
            self._note("lease.refuse", now, lease, reason="budget: kv_pool_ratio is spent", for_whom=request)
            return Grant(offered=len(blocks), reason="budget: kv_pool_ratio is spent")
        reach = self.parking.reach(lease.digests, fitting)
        lease = evolve(lease, blocks=lease.blocks[:fitting], digests=lease.digests[:reach])
        gained = self.table.new_blocks(lease.blocks)
        self.table.put(lease)
        self._reclass(old, lease)
        self._note("lease.extend" if old else "lease.grant", now, lease, blocks=gained, for_whom=request)
        return Grant(token=lease.token, handle=self.handle_of(lease), blocks=fitting, offered=len(blocks))

    def renew(
        self,
        token: str,
        *,
        ttl: float,
        now: float,
        expected_reuse: float | None = None,
        lease_class: LeaseClass | None = None,
    ) -> str | None:
        """Move a lease's end of life to ``now + ttl``, and say anew when and as what it is wanted; None or a reason."""
        old = self.table.get(token)
        if old is None:
            return self.reject(UNKNOWN_LEASE, now)
        lease = old.renewed(now, ttl, expected_reuse, lease_class)
        self.table.amend(lease)
        self._reclass(old, lease)
        self._note("lease.renew", now, lease)
        return None

    def release(self, token: str, now: float) -> str | None:
        """End a lease: its KV is dead and goes first. None, or the reason why nothing was released."""
        lease = self.table.get(token)
        if lease is None:
            return self.reject(UNKNOWN_LEASE, now)
        self._drop(lease, "lease.release", now)
        return None

    def release_ticket(self, ticket: str, now: float) -> None:
        """End the leases taken under an admission ticket; anchors stay until their own end of life."""
        for lease in self.table.of_ticket(ticket):
            if lease.lease_class != "anchor":
                self._drop(lease, "lease.release", now)

    def downgrade_ticket(self, ticket: str, now: float, reason: str) -> None:
        """Make the leases under a ticket the first to go, anchors apart."""
        for old in self.table.of_ticket(ticket):
            if old.lease_class not in ("anchor", "speculative"):
                lease = evolve(old, lease_class="speculative")
                self.table.amend(lease)
                self._reclass(old, lease)
                self._note("lease.downgrade", now, lease, reason=reason)

    def expire(self, now: float) -> int:
        """End every lease whose time is over; returns how many there were."""
        overdue = self.table.overdue(now)
        for lease in overdue:
            self._drop(lease, "lease.expire", now)
        return len(overdue)

    def verify(self, token: str, handle: KVHandle, now: float) -> str | None:
        """None if the token's lease holds exactly the KV that the handle names, else the reason; counted."""
        lease = self.table.get(token)
        reason = UNKNOWN_LEASE if lease is None else handle.verify(self.handle_of(lease))
        return self.reject(reason, now) if reason is not None else None

    def handle_of(self, lease: Lease) -> KVHandle:
        """The name of the KV that a lease holds now, in the pool or in host memory."""
        return KVHandle(
            engine_id=self.engine_id,
            epoch=self.epoch,
            owner=lease.owner,
            digest=lease.digests[-1].hex(),
            length=len(lease.digests) * self.block_size,
        )

    def make_room(
        self,
        deficit: int,
        now: float,
        *,
        for_whom: str = "",
        protect: frozenset[int] = NO_BLOCKS,
        only_speculative: bool = False,
        partly: bool = False,
        may_wait: bool = False,
    ) -> int:
        """Cut leases in the one order until ``deficit`` blocks became really free; returns how many did.

        ``protect`` are blocks that the requester itself builds on: letting go of them gains nothing. Nothing is
        cut when the leases cannot suffice, unless ``partly``. ``only_speculative`` is all that a prefetch may ask for.
        What has copies in host memory goes first; with ``may_wait`` nothing else does while more will have copies.
        """
        known = only_speculative or (may_wait and self.parking is not NO_PARKING)
        if deficit <= 0 or not (known or self.planner.may_suffice(deficit, protect, now)):
            return 0
        leases = list(self.table.speculative() if only_speculative else self.table.in_order())

        def counts_as_room(block: int) -> bool:
            return block not in protect and self.table.free_when_unleased(block)

        if may_wait:
            cuts, gained = self.planner.lossless(leases, deficit, counts_as_room, self.parking)
            freed = self._apply(cuts, now, "room", for_whom)
            if gained >= deficit or self.parking.relieve(deficit - freed, for_whom, now):
                return freed
            freed += self.make_room(deficit - freed, now, for_whom=for_whom, protect=protect)
            if freed < deficit:
                self.parking.short()
            return freed
        cuts, gained = self.planner.plan(leases, deficit, counts_as_room, self.parking, protect)
        enough = gained >= deficit or (partly and gained > 0)
        return self._apply(cuts, now, "room", for_whom) if enough else 0

    def park(self, lease: Lease, keep: int, now: float) -> None:
        """Have a lease keep ``keep`` blocks in the pool, and of the rest what has copies in host memory."""
        self._apply([(lease, keep)], now, "asked", "")

    def cut_away(self, lease: Lease, reach: int, now: float, for_whom: str) -> None:
        """Have a lease give up what is in host memory behind its first ``reach`` contents."""
        handle, lost = self.handle_of(lease), len(lease.digests) - reach
        self.table.shrink(lease, len(lease.blocks), reach)
        if reach == 0:
            self.classes[lease.lease_class] -= 1
        self._note("tier.evict", now, lease, blocks=lost, reason="host memory", for_whom=for_whom, handle=handle)

    def reset(self, now: float) -> int:
        """Drop every lease and start a new epoch, as the prefix cache is about to be emptied."""
        count = len(self.table)
        for lease in self.table:
            self.table.drop(lease, dead=False)
        self.classes.clear()
        self.epoch += 1
        self.records.add("reset", now, reason=f"epoch {self.epoch}")
        return count

    def stats(self) -> dict[str, Any]:
        """Counters as a JSON object."""
        classes = {name: n for name, n in self.classes.items() if n}
        return {**self.table.stats(), "leases_by_class": classes, "epoch": self.epoch}

    def reject(self, reason: str, now: float, run: str = "") -> str:
        """Count something that a client sent and that is not honoured; returns the reason."""
        self.records.add("reject", now, run=run, reason=reason)
        return reason

    def _no_grant(self, directive: Directive, blocks: Sequence[int]) -> str | None:
        if self._mode == "independent":
            return "prefix_cache_mode: independent takes no leases"
        if directive.ttl == 0:
            return "ttl: 0 asks for no lease"
        return None if blocks else "length: less than a block"

    def _extended(self, directive: Directive, now: float) -> Lease | None:
        """The lease that the request's chain extends, if its token, owner and handle are right."""
        if directive.lease is None:
            return None
        old = self.table.get(directive.lease)
        if old is None or (old.run, old.owner) != (directive.run, directive.owner):
            self.reject(UNKNOWN_LEASE, now, directive.run)
            return None
        if directive.handle is not None and (reason := directive.handle.verify(self.handle_of(old))) is not None:
            self.reject(reason, now, directive.run)
        return old

    def _shape(
        self, directive: Directive, old: Lease | None, blocks: Sequence[int], digests: Sequence[bytes], now: float
    ) -> Lease:
        if old is None:
            self._serial += 1
        elif tuple(digests) == old.digests[: len(digests)]:
            # A request over less of the chain must not take away what lies behind.
            blocks, digests = max(tuple(blocks), old.blocks, key=len), old.digests
        return Lease(
            token=old.token if old else self._mint(),
            serial=old.serial if old else self._serial,
            run=directive.run,
            owner=directive.owner,
            ticket=old.ticket if old else directive.ticket or "",
            lease_class=directive.lease_class,
            blocks=tuple(blocks),
            digests=tuple(digests),
            expected_reuse=now + directive.expected_reuse if directive.expected_reuse is not None else None,
            expires=now + directive.ttl,
            used=now,
        )

    def _fit_budget(self, lease: Lease, old: Lease | None, prefetch: bool, now: float, request: str) -> int:
        """Blocks of ``lease`` that fit the budget, after cutting leases that go before it."""
        if not prefetch:
            self.spare_budget(lease.token, lease.blocks, now, request)
        over = self.table.over(lease.blocks)
        # While copies are made by which others can leave, the budget is exceeded rather than KV lost.
        if over <= 0 or (not prefetch and self.parking.relieve(over, request, now)):
            return len(lease.blocks)
        key = eviction_key(lease)
        lower = takewhile(lambda each: eviction_key(each) < key, self.table.in_order())
        others = [e for e in lower if e is not old and (not prefetch or e.lease_class == "speculative")]
        cuts, _ = self.planner.plan(others, over, lambda _: True, self.parking)
        self._apply(cuts, now, "budget", request)
        return self.table.fitting(lease.blocks)

    def spare_budget(self, token: str, blocks: Sequence[int], now: float, request: str) -> None:
        """Make room in the budget for a lease with further ``blocks``, as far as other leases lose nothing by it."""
        if (over := self.table.over(blocks)) > 0:
            others = [each for each in self.table.in_order() if each.token != token]
            cuts, _ = self.planner.lossless(others, over, self.table.free_when_unleased, self.parking)
            self._apply(cuts, now, "budget", request)

    def _apply(self, cuts: Sequence[Cut], now: float, reason: str, for_whom: str) -> int:
        freed = 0
        for lease, keep in cuts:
            handle, reach = self.handle_of(lease), self.parking.reach(lease.digests, keep)
            gone = self.table.shrink(lease, keep, reach)
            freed += gone
            if reach == 0:
                self.classes[lease.lease_class] -= 1
            kind: RecordKind = "lease.demote" if reach == len(lease.digests) else "lease.evict"
            self._note(kind, now, lease, blocks=gone, reason=reason, for_whom=for_whom, handle=handle)
        return freed

    def _drop(self, lease: Lease, kind: RecordKind, now: float) -> None:
        handle = self.handle_of(lease)
        freed = self.table.drop(lease, dead=True)
        self.classes[lease.lease_class] -= 1
        self._note(kind, now, lease, blocks=freed, handle=handle)

    def _reclass(self, old: Lease | None, new: Lease) -> None:
        if old is not None:
            self.classes[old.lease_class] -= 1
        self.classes[new.lease_class] += 1

    def _note(self, kind: RecordKind, now: float, lease: Lease, **details: Any) -> None:
        details.setdefault("handle", self.handle_of(lease))
        self.records.add(kind, now, run=lease.run, owner=lease.owner, lease_class=lease.lease_class, **details)
