"""Leases: the engine's promises to keep blocks, and the table that counts them."""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Protocol

from attrs import evolve, frozen

from agentkv.common_prefix import common_prefix
from agentkv.kv.deadlines import Deadlines
from agentkv.kv.directive import LeaseClass
from agentkv.kv.order import EvictionKey, eviction_key

__all__ = ("BlockHolder", "Lease", "LeaseTable")


class BlockHolder(Protocol):
    """A pool of reference-counted blocks, as leases use it. Block ids are the pool's own."""

    def hold(self, blocks: Sequence[int]) -> None:
        """Take one reference on each block. Every block is cached and full."""
        ...

    def let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        """Give one reference back on each block; returns how many became free.

        ``blocks`` come in chain order and the end of the chain is to be evicted first. ``dead``: nobody will
        ask for this KV again, so it goes right behind what is not cached; else it counts as just used.
        """
        ...

    def ref_count(self, block: int) -> int:
        """References on the block, those of leases (one in all) included."""
        ...


@frozen(kw_only=True)
class Lease:
    """A promise to keep the KV of a chain's first blocks, which ``digests``, the engine's content hashes, name.

    ``blocks`` are those of them that are in the pool, from the first on; the others, if any, are in host memory.

    ``token`` is the authority over the lease; so is ``ticket``, that of the run's admission ("" if it has none).
    ``expected_reuse`` (None: unknown), ``expires`` and ``used`` are
    engine seconds; ``serial`` is the order of granting and makes the eviction order total.
    """

    token: str
    serial: int
    run: str
    owner: str
    ticket: str
    lease_class: LeaseClass
    blocks: tuple[int, ...]
    digests: tuple[bytes, ...]
    expected_reuse: float | None
    expires: float
    used: float

    @property
    def away(self) -> tuple[bytes, ...]:
        """Contents of the blocks that are in host memory alone."""
        return self.digests[len(self.blocks) :]

    def renewed(
        self, now: float, ttl: float, expected_reuse: float | None, lease_class: LeaseClass | None = None
    ) -> "Lease":
        """Alive until ``now + ttl`` and wanted again in ``expected_reuse`` seconds (None: unknown).

        Clients renew what waits again and again, each in its turn, and chains must not change places by that. So one
        that is overdue stays expected for when it was. Of anchors alone a renewal is a use: nothing else tells of it.
        """
        reuse = None if expected_reuse is None else now + expected_reuse
        if expected_reuse == 0 and self.expected_reuse is not None:
            reuse = min(self.expected_reuse, now)
        return evolve(
            self,
            expires=now + ttl,
            used=now if self.lease_class == "anchor" else self.used,
            expected_reuse=reuse,
            lease_class=lease_class or self.lease_class,
        )


class LeaseTable:
    """Owns the leases. However many leases name a block, the table holds one reference on it.

    ``budget``: most unique blocks that all leases together may hold. ``watch`` is told, with its token, of each
    lease that was entered or changed, and of each that is gone (None).
    """

    def __init__(self, holder: BlockHolder, budget: int) -> None:
        self._holder = holder
        self.budget = budget
        self.watch: Callable[[str, Lease | None], None] = _nobody
        self._leases: dict[str, Lease] = {}
        self._counts: Counter[int] = Counter()
        self._tickets: defaultdict[str, set[str]] = defaultdict(set)
        self._ends = Deadlines()
        self._order: list[tuple[EvictionKey, str]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def __bool__(self) -> bool:
        return bool(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def in_order(self) -> Iterator[Lease]:
        """The leases, first to go first; nothing may be changed while it is read."""
        return (self._leases[token] for _, token in self._order)

    def speculative(self) -> Iterator[Lease]:
        """Those that stand first in the order."""
        return takewhile(lambda lease: lease.lease_class == "speculative", self.in_order())

    @property
    def held(self) -> int:
        """Unique blocks held."""
        return len(self._counts)

    def stats(self) -> dict[str, int]:
        """How many leases there are, the blocks that they hold, and may hold."""
        return {"leases": len(self), "leased_blocks": self.held, "lease_budget": self.budget}

    def get(self, token: str) -> Lease | None:
        return self._leases.get(token)

    def of_ticket(self, ticket: str) -> list[Lease]:
        """The leases taken under an admission ticket, oldest first."""
        return sorted((self._leases[token] for token in self._tickets.get(ticket, ())), key=lambda each: each.serial)

    def overdue(self, now: float) -> list[Lease]:
        """The leases whose time is over, oldest first."""
        return sorted((self._leases[token] for token in self._ends.due(now)), key=lambda each: each.serial)

    def ticket_blocks(self, ticket: str) -> int:
        """Unique blocks that the leases under a ticket name."""
        return len({block for lease in self.of_ticket(ticket) for block in lease.blocks})

    def count(self, block: int) -> int:
        """Leases that name the block."""
        return self._counts.get(block, 0)

    def by_class(self) -> dict[str, int]:
        """Unique blocks held, each counted for the class of its leases that goes last; last to go first."""
        by_class: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
        for lease in self._leases.values():
            by_class[lease.lease_class].append(lease.blocks)
        anchor = set().union(*by_class["anchor"])
        # Most blocks are chains', and those are many: they are what is left, and need not be looked at.
        speculative = Counter(chain.from_iterable(by_class["speculative"]))
        lower = speculative + Counter(chain.from_iterable(by_class["branch"]))
        alone = [block for block, count in lower.items() if self._counts[block] == count]
        branch = sum(1 for block in alone if speculative[block] < lower[block])
        found = {"branch": branch, "speculative": len(alone) - branch}
        return {"anchor": len(anchor), "chain": self.held - len(anchor) - len(alone), **found}

    def new_blocks(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` no lease holds yet."""
        return sum(1 for block in blocks if block not in self._counts)

    def over(self, blocks: Sequence[int]) -> int:
        """How many blocks too many leases would hold if they held ``blocks`` as well; negative: room that is left."""
        return self.held + self.new_blocks(blocks) - self.budget

    def fitting(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks``, from the first on, fit into the budget."""
        room = self.budget - self.held
        for place, block in enumerate(blocks):
            room -= block not in self._counts
            if room < 0:
                return place
        return len(blocks)

    def put(self, lease: Lease) -> int:
        """Enter the lease or replace the one with its token; returns blocks that became free by the replacement.

        The caller has made sure that the budget holds.
        """
        old = self._leases.get(lease.token)
        shared = common_prefix(old.blocks, lease.blocks) if old is not None else 0
        self._hold(lease.blocks[shared:])
        self.amend(lease)
        if lease.ticket:
            self._tickets[lease.ticket].add(lease.token)
        return self._let_go(old.blocks[shared:], dead=False) if old is not None else 0

    def amend(self, lease: Lease) -> None:
        """Replace a lease by one with the same token and blocks."""
        if (old := self._leases.get(lease.token)) is not None:
            self._out_of_order(old)
        insort(self._order, (eviction_key(lease), lease.token))
        self._leases[lease.token] = lease
        self._ends.set(lease.token, lease.expires)
        self.watch(lease.token, lease)

    def drop(self, lease: Lease, *, dead: bool) -> int:
        """Remove the lease; returns the number of blocks that became free."""
        self._out_of_order(self._leases.pop(lease.token))
        self._ends.drop(lease.token)
        if lease.ticket:
            self._tickets[lease.ticket].discard(lease.token)
            if not self._tickets[lease.ticket]:
                del self._tickets[lease.ticket]
        self.watch(lease.token, None)
        return self._let_go(lease.blocks, dead=dead)

    def shrink(self, lease: Lease, keep: int, reach: int | None = None) -> int:
        """Keep only the lease's first ``keep`` blocks in the pool; returns the number that became free.

        Contents up to ``reach`` stay the lease's, in host memory (None: none do); a lease that has none is dropped.
        """
        reach = keep if reach is None else reach
        if reach <= 0:
            return self.drop(lease, dead=True)
        self.amend(evolve(lease, blocks=lease.blocks[:keep], digests=lease.digests[:reach]))
        return self._let_go(lease.blocks[keep:], dead=True)

    def extend(self, lease: Lease, blocks: Sequence[int]) -> Lease:
        """The lease, which holds ``blocks`` too from now on: the next of its contents, back in the pool."""
        self._hold(blocks)
        longer = evolve(lease, blocks=(*lease.blocks, *blocks))
        self.amend(longer)
        return longer

    def free_when_unleased(self, block: int) -> bool:
        """Whether nobody but leases refers to the block, so that it becomes free when the last of them goes."""
        return self._holder.ref_count(block) == 1

    def can_free(self, deficit: int, protect: frozenset[int]) -> bool:
        """Whether all leases together may be able to free ``deficit`` blocks, those in ``protect`` apart.

        By the ends of chains alone: who uses the end of one uses all of it. What chains share is counted for each. Only
        who builds on ``protect`` may do so on doubles of what a chain begins with.
        """
        if len(self._counts) < deficit:
            return False
        found = 0
        for lease in self._leases.values():
            if lease.blocks and lease.blocks[-1] in protect:
                found += sum(block not in protect and self.free_when_unleased(block) for block in lease.blocks)
            elif lease.blocks and self.free_when_unleased(lease.blocks[-1]):
                found += len(lease.blocks)
        return found >= deficit

    def _out_of_order(self, lease: Lease) -> None:
        del self._order[bisect_left(self._order, (eviction_key(lease), lease.token))]

    def _hold(self, blocks: Sequence[int]) -> None:
        fresh = [block for block in blocks if block not in self._counts]
        self._counts.update(blocks)
        if fresh:
            self._holder.hold(fresh)

    def _let_go(self, blocks: Sequence[int], *, dead: bool) -> int:
        last: list[int] = []
        for block in blocks:
            if self._counts[block] == 1:
                del self._counts[block]
                last.append(block)
            else:
                self._counts[block] -= 1
        return self._holder.let_go(last, dead=dead) if last else 0


def _nobody(token: str, lease: Lease | None) -> None:
    """Where there is no second tier nobody watches."""
