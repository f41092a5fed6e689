"""Which leases to cut, and how far, so that enough blocks are given up: no more than needed, in the one order."""

from collections import Counter
from collections.abc import Callable, Iterable

from agentkv.kv.lease import Lease

__all__ = ("Cut", "plan_cuts")

#: A lease and the number of its first blocks that it keeps.
Cut = tuple[Lease, int]


def plan_cuts(
    leases: Iterable[Lease],
    deficit: int,
    *,
    count: Callable[[int], int],
    counts_as_room: Callable[[int], bool],
) -> tuple[list[Cut], int]:
    """Cut ``leases``, given in eviction order, from their ends until ``deficit`` blocks are gained.

    ``count`` says how many leases name a block; it is gained only when all of them let go of it, and only if it
    ``counts_as_room``. Returns the cuts and the blocks gained, fewer than ``deficit`` when the leases cannot
    suffice. A lease whose end gains nothing is left alone.
    """
    named: Counter[int] = Counter()
    gained: set[int] = set()
    considered: list[Lease] = []
    for lease in leases:
        if len(gained) >= deficit:
            break
        considered.append(lease)
        for block in reversed(lease.blocks):
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
