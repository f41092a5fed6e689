"""Which leases to cut, and how far, so that enough blocks are given up: no more than needed, in the one order."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agentkv.kv.lease import Lease, LeaseTable
from agentkv.kv.parking import NO_PARKING, Parking

__all__ = ("HOPELESS_SECONDS", "Cut", "RoomPlanner", "plan_cuts")

#: After leases could not suffice, as much is not asked of them again for so long, unless a request ends.
HOPELESS_SECONDS = 0.05
NOT_HOPELESS = (0, float("-inf"))

#: A lease and the number of its first blocks that it keeps.
Cut = tuple[Lease, int]


def plan_cuts(
    leases: Iterable[Lease],
    deficit: int,
    *,
    count: Callable[[int], int],
    counts_as_room: Callable[[int], bool],
    protect: frozenset[int] = frozenset(),
    floor: Callable[[Lease], int] = lambda _: 0,
) -> tuple[list[Cut], int]:
    """Cut ``leases``, given in eviction order, from their ends until ``deficit`` blocks are gained.

    ``count`` says how many leases name a block; it is gained only when all of them let go of it, and only if it
    ``counts_as_room``. ``protect`` are blocks that whoever asks builds on. No lease is cut below ``floor`` blocks.
    Returns the cuts and the blocks gained, fewer than ``deficit`` when the leases cannot suffice. A lease whose end
    gains nothing is left alone.
    """
    named: Counter[int] = Counter()
    gained: set[int] = set()
    considered: list[Lease] = []
    for lease in leases:
        if len(gained) >= deficit:
            break
        if lease.blocks and not counts_as_room(lease.blocks[-1]) and lease.blocks[-1] not in protect:
            # Who uses the end of a chain uses all of it; whoever asks may build on doubles of what comes before.
            continue
        considered.append(lease)
        for block in reversed(lease.blocks[floor(lease) :]):
            named[block] += 1
            if named[block] == count(block) and counts_as_room(block):
                gained.add(block)
                if len(gained) >= deficit:
                    break
    cuts = [(lease, keep) for lease in considered if (keep := _keep(lease, gained)) < len(lease.blocks)]
    return cuts, len(gained)


def _keep(lease: Lease, gained: set[int]) -> int:
    """Blocks of the lease before the first one that is gained; KV behind a missing block is of no use."""
    return next((i for i, block in enumerate(lease.blocks) if block in gained), len(lease.blocks))


class RoomPlanner:
    """Plans cuts in ``table``, and remembers for ``retry_seconds`` what its leases could not give."""

    def __init__(self, table: LeaseTable, retry_seconds: float) -> None:
        self._table = table
        self._retry_seconds = retry_seconds
        self._hopeless = NOT_HOPELESS

    def references_changed(self) -> None:
        """Take note that a request ended: what only leases refer to has grown."""
        self._hopeless = NOT_HOPELESS

    def may_suffice(self, deficit: int, protect: frozenset[int], now: float) -> bool:
        """Whether planning is worth it: a request that waits asks again in every step, over all blocks held."""
        least, until = self._hopeless
        if deficit >= least and now < until:
            return False
        if self._table.can_free(deficit, protect):
            return True
        self._hopeless = (deficit, now + self._retry_seconds)
        return False

    def plan(
        self,
        leases: Sequence[Lease],
        deficit: int,
        counts_as_room: Callable[[int], bool],
        parking: Parking,
        protect: frozenset[int] = frozenset(),
    ) -> tuple[list[Cut], int]:
        """Cuts of ``leases`` that gain ``deficit`` blocks or less, and what they gain; lossless ones if they do."""
        cuts, gained = self.lossless(leases, deficit, counts_as_room, parking)
        if gained >= deficit:
            return cuts, gained
        return plan_cuts(leases, deficit, count=self._table.count, counts_as_room=counts_as_room, protect=protect)

    def lossless(
        self, leases: Sequence[Lease], deficit: int, counts_as_room: Callable[[int], bool], parking: Parking
    ) -> tuple[list[Cut], int]:
        """Cuts by which nothing is lost, as ``parking`` says."""
        if parking is NO_PARKING:
            return [], 0
        return plan_cuts(leases, deficit, count=self._table.count, counts_as_room=counts_as_room, floor=parking.floor)
