"""What the active runs plan to hold, kept up to date as they come and go."""

from collections import Counter, defaultdict

from agentkv.kv.ticket import Ticket

__all__ = ("Planned",)


class Planned:
    """Sums over active runs. ``roots`` counts those without a parent."""

    def __init__(self) -> None:
        self.active = 0
        self.roots = 0
        self._own = 0
        self._in_common = 0
        # How many runs declare each size of an anchor; it counts with the largest.
        self._anchors: defaultdict[str, Counter[int]] = defaultdict(Counter)

    @property
    def blocks(self) -> int:
        """Blocks that the runs plan to hold together, an anchor that several share counted once."""
        return self._own + self._in_common

    def add(self, ticket: Ticket) -> None:
        """A run has become active."""
        self._count(ticket, 1)

    def remove(self, ticket: Ticket) -> None:
        """A run, as it was added, is active no more."""
        self._count(ticket, -1)

    def shared(self, ticket: Ticket) -> int:
        """Blocks of ``ticket``'s anchor that active runs hold already."""
        return min(self._size(ticket.anchor), ticket.anchor_blocks) if ticket.anchor else 0

    def _count(self, ticket: Ticket, change: int) -> None:
        self.active += change
        self.roots += change if ticket.parent is None else 0
        self._own += change * (ticket.blocks - ticket.anchor_blocks)
        if not ticket.anchor_blocks:
            return
        name = ticket.anchor or ticket.token
        before, sizes = self._size(name), self._anchors[name]
        sizes[ticket.anchor_blocks] += change
        if not sizes[ticket.anchor_blocks]:
            del sizes[ticket.anchor_blocks]
        self._in_common += self._size(name) - before
        if not sizes:
            del self._anchors[name]

    def _size(self, anchor: str) -> int:
        return max(self._anchors[anchor]) if self._anchors.get(anchor) else 0
