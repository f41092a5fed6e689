"""What the active runs plan to hold, kept up to date as they come and go."""

import math
from collections import Counter, defaultdict

from agentkv.kv.ticket import Ticket

__all__ = ("Planned",)


#: Standard deviations by which the blocks of those at work may exceed their mean: 95 of 100 moments are below.
MARGIN = 1.65


class Planned:
    """Sums over active runs. ``roots`` counts those without a parent."""

    def __init__(self) -> None:
        self.active = 0
        self.roots = 0
        self._own = 0
        self._squares = 0
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

    def at_work(self, duty: float, newcomer: Ticket) -> float:
        """Blocks of runs at work at one moment, ``newcomer`` among them, if each works in a share ``duty`` of time.

        Mean and margin: the number at work is binomial; by its normal approximation, MARGIN standard deviations
        above the mean. Anchors count whole.
        """
        own = newcomer.blocks - newcomer.anchor_blocks
        in_common = self._in_common + newcomer.anchor_blocks - self.shared(newcomer)
        spread = math.sqrt(duty * (1 - duty) * (self._squares + own * own))
        return in_common + duty * (self._own + own) + MARGIN * spread

    def _count(self, ticket: Ticket, change: int) -> None:
        self.active += change
        self.roots += change if ticket.parent is None else 0
        own = ticket.blocks - ticket.anchor_blocks
        self._own += change * own
        self._squares += change * own * own
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
