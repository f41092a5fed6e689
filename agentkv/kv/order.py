"""The one order in which KV is given up.

First to go: uncached free blocks; released (dead) ones; speculative leases; unleased cached blocks, least recently
used first; branch leases; chain leases by farthest expected reuse; anchors by least recent use. The pool itself
keeps the blocks that no lease holds in this order; here is the order of the leases.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from agentkv.kv.directive import LeaseClass

if TYPE_CHECKING:
    from agentkv.kv.lease import Lease

__all__ = ("RANKS", "CacheMode", "EvictionKey", "eviction_key", "in_order")

CacheMode = Literal["hybrid", "independent"]

#: Lower goes first; no two leases have an equal one.
EvictionKey = tuple[int, float, float, int]

#: Rank of each lease class; unleased cached blocks stand between speculative leases (0) and branches (2).
RANKS: dict[LeaseClass, int] = {"speculative": 0, "branch": 2, "chain": 3, "anchor": 4}


def eviction_key(lease: "Lease") -> EvictionKey:
    """Sort key: lower goes first. Total, because serial numbers are unique.

    Within speculative, branch and chain the farthest expected reuse goes first, an unknown one being the
    farthest; anchors go by least recent use alone.
    """
    reuse = 0.0
    if lease.lease_class != "anchor":
        reuse = -lease.expected_reuse if lease.expected_reuse is not None else float("-inf")
    return RANKS[lease.lease_class], reuse, lease.used, lease.serial


def in_order(leases: Iterable["Lease"]) -> list["Lease"]:
    """The leases, first to go first."""
    return sorted(leases, key=eviction_key)
