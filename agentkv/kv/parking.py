"""Where a lease's KV can be that is not in the pool, as those who cut leases ask."""

from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from agentkv.kv.lease import Lease

__all__ = ("NO_PARKING", "Parking")


class Parking(Protocol):
    """What a second tier says to whoever makes room in the first."""

    def floor(self, lease: Lease) -> int:
        """How many of the lease's first blocks must stay in the pool for nothing to be lost."""
        ...

    def reach(self, digests: Sequence[bytes], keep: int) -> int:
        """How many of a chain's first contents there are when only ``keep`` of them are in the pool."""
        ...

    def relieve(self, deficit: int, for_whom: str, now: float) -> bool:
        """Whether ``deficit`` blocks will be able to go without loss: copies of them are on their way, or will be."""
        ...

    def short(self) -> None:
        """A request lacks room still: until it asks again what is free is meant for it."""
        ...


class _NoParking(Parking):
    """An engine without a second tier: what leaves the pool is lost."""

    @override
    def floor(self, lease: Lease) -> int:
        return 0

    @override
    def reach(self, digests: Sequence[bytes], keep: int) -> int:
        return keep

    @override
    def relieve(self, deficit: int, for_whom: str, now: float) -> bool:
        return False

    @override
    def short(self) -> None:
        """Nothing is brought in ahead of need."""


NO_PARKING: Parking = _NoParking()
