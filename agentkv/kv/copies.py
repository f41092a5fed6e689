"""Which blocks have a copy in host memory: slots, found by content, kept as long as a lease names the content."""

import heapq
from collections.abc import Iterable, Sequence

from agentkv.common_prefix import common_prefix

__all__ = ("HostCopies",)


class _Copy:
    """One slot's content. ``pins`` counts the transfers that read it; ``ready``: it has been written."""

    __slots__ = ("holders", "pins", "ready", "slot")

    def __init__(self, slot: int, holders: frozenset[str]) -> None:
        self.slot = slot
        self.ready = False
        self.pins = 0
        # One set for all that are copied at once, as there are as many copies as host memory has blocks.
        self.holders = holders


class HostCopies:
    """Owns ``slots`` slots of one block each. A copy lives while a lease (by token) holds it or a transfer needs it."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots))
        self._copies: dict[bytes, _Copy] = {}
        self._of: dict[str, dict[bytes, None]] = {}
        self._followed: dict[str, tuple[Sequence[bytes], int]] = {}
        # Given up while a transfer still wrote or read them: the slot comes back when that has ended.
        self._orphans: dict[int, _Copy] = {}

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    def ready(self, digest: bytes) -> bool:
        """Whether the content can be read."""
        copy = self._copies.get(digest)
        return copy is not None and copy.ready

    def has(self, digest: bytes) -> bool:
        """Whether the content is there, or on its way."""
        return digest in self._copies

    def slot(self, digest: bytes) -> int:
        """Where the content is; raises ``KeyError`` where it is not."""
        return self._copies[digest].slot

    def holders(self, digest: bytes) -> frozenset[str]:
        """Tokens of the leases that hold the copy."""
        copy = self._copies.get(digest)
        return copy.holders if copy is not None else frozenset()

    def of(self, token: str) -> tuple[bytes, ...]:
        """What a lease holds, in the order in which it was copied."""
        return tuple(self._of.get(token, ()))

    def reserve(self, token: str, digests: Sequence[bytes]) -> list[int]:
        """Slots for contents that have none yet, to be written for the lease; there must be as many free ones."""
        taken = [heapq.heappop(self._free) for _ in digests]
        holders = frozenset((token,))
        self._copies.update((digest, _Copy(slot, holders)) for digest, slot in zip(digests, taken, strict=True))
        self._of.setdefault(token, {}).update(dict.fromkeys(digests))
        return taken

    def written(self, digest: bytes, slot: int, *, good: bool) -> None:
        """A transfer into ``slot`` has ended."""
        copy = self._copies.get(digest)
        if copy is None or copy.slot != slot:
            self._orphans.pop(slot)
            heapq.heappush(self._free, slot)
            return
        # No transfer writes it any more, so that what did not arrive gives its slot back at once.
        copy.ready = True
        if not good:
            self.discard(digest)

    def pin(self, digests: Iterable[bytes]) -> list[int]:
        """Keep ready copies as long as a transfer reads them; their slots."""
        found = []
        for digest in digests:
            copy = self._copies[digest]
            copy.pins += 1
            found.append(copy.slot)
        return found

    def unpin(self, digest: bytes, slot: int) -> None:
        """A transfer out of ``slot`` has ended."""
        copy = self._copies.get(digest)
        if copy is not None and copy.slot == slot:
            copy.pins -= 1
            return
        orphan = self._orphans[slot]
        orphan.pins -= 1
        if not orphan.pins:
            del self._orphans[slot]
            heapq.heappush(self._free, slot)

    def follow(self, token: str, digests: Sequence[bytes], resident: int = 0) -> None:
        """The lease names ``digests`` now, the first ``resident`` of which are in the pool.

        It holds the copies of those that are not, and of those that have become its, and nothing that it does not name.
        """
        before, held = self._followed.get(token, ((), 0))
        if before is digests and resident >= held:
            self._followed[token] = digests, resident
            return
        same = common_prefix(before, digests)
        for digest in before[same:] if digests else self.of(token):
            if digest in self._of.get(token, ()):
                self._let_go(token, digest)
        for digest in digests[min(same, resident) :]:
            copy = self._copies.get(digest)
            if copy is not None and token not in copy.holders:
                copy.holders |= {token}
                self._of.setdefault(token, {})[digest] = None
        if digests:
            self._followed[token] = digests, resident
        else:
            self._followed.pop(token, None)

    def count(self, token: str) -> int:
        """How many copies a lease holds."""
        return len(self._of.get(token, ()))

    def spare(self, token: str, digests: Sequence[bytes], most: int) -> None:
        """Give up at most ``most`` copies among ``digests``, first to last, that nothing else holds or needs."""
        wanted = self.free + most
        for digest in digests:
            if self.free >= wanted:
                return
            copy = self._copies.get(digest)
            if copy is not None and copy.ready and not copy.pins and copy.holders == {token}:
                self.discard(digest)

    def discard(self, digest: bytes) -> None:
        """Forget a copy, whoever holds it."""
        copy = self._copies.pop(digest)
        for token in copy.holders:
            held = self._of[token]
            del held[digest]
            if not held:
                del self._of[token]
        self._retire(copy)

    def clear(self) -> None:
        """Forget everything; slots that transfers use come back when these end."""
        for digest in list(self._copies):
            self.discard(digest)

    def _let_go(self, token: str, digest: bytes) -> None:
        copy = self._copies[digest]
        copy.holders -= {token}
        held = self._of[token]
        del held[digest]
        if not held:
            del self._of[token]
        if not copy.holders:
            del self._copies[digest]
            self._retire(copy)

    def _retire(self, copy: _Copy) -> None:
        if copy.pins or not copy.ready:
            self._orphans[copy.slot] = copy
        else:
            heapq.heappush(self._free, copy.slot)

    def check_integrity(self) -> None:
        """Assert that every slot is free, a copy's or an orphan's, and that holders and copies agree."""
        used = [copy.slot for copy in self._copies.values()] + list(self._orphans)
        assert sorted(used + self._free) == list(range(self.slots)), "a slot is lost, or used twice"
        assert all(copy.holders for copy in self._copies.values()), "a copy that nobody holds"
        held = {(token, digest) for token, digests in self._of.items() for digest in digests}
        assert held == {(token, digest) for digest, copy in self._copies.items() for token in copy.holders}
