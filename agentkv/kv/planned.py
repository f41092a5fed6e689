"""What the active runs plan to hold, kept up to date as they come and go."""

import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from itertools import accumulate, count
from operator import add, itemgetter, mul

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
        self._soon = 0
        self._squares = 0
        # What each lacks and holds, the least first; kept in order, since it is asked for over and over.
        self._growing: list[tuple[int, int]] = []
        self._grown = 0
        self._in_common = 0
        # How many runs declare each size of an anchor; it counts with the largest.
        self._anchors: defaultdict[str, Counter[int]] = defaultdict(Counter)

    @property
    def blocks(self) -> int:
        """Blocks that the runs plan to hold together, an anchor that several share counted once."""
        return self._own + self._in_common

    @property
    def soon(self) -> int:
        """Blocks that the runs hold together after one more step of each."""
        return self._soon + self._in_common

    def add(self, ticket: Ticket) -> None:
        """A run has become active."""
        self._count(ticket, 1)

    def remove(self, ticket: Ticket) -> None:
        """A run, as it was added, is active no more."""
        self._count(ticket, -1)

    def shared(self, ticket: Ticket) -> int:
        """Blocks of ``ticket``'s anchor that active runs hold already."""
        return min(self._size(ticket.anchor), ticket.anchor_blocks) if ticket.anchor else 0

    def peak(self, newcomer: Ticket) -> int:
        """The most that the runs will hold at one moment, ``newcomer`` among them, if all grow at one pace.

        The most is held just before one of them ends. When one that lacks ``x`` blocks does, those that lacked less
        are gone and all others hold ``x`` more than now. One that lacks nothing stays: nobody said when it ends.
        (Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025,
        doi:10.1145/3676641.3716011, estimate what the requests of a batch will hold at later moments like this.)
        """
        in_common = self._in_common + newcomer.anchor_blocks - self.shared(newcomer)
        lacks, own = mine = _growth(newcomer)
        growing = [*self._growing]
        if lacks:
            insort(growing, mine)
        growing.reverse()
        held = accumulate(map(itemgetter(1), growing))
        still_to_come = map(mul, map(itemgetter(0), growing), count(1))
        return in_common + self._grown + (0 if lacks else own) + max(map(add, held, still_to_come), default=0)

    def at_work(self, duty: float, newcomer: Ticket) -> float:
        """Blocks of runs at work at their fullest moment, if each works in a share ``duty`` of time.

        Mean and margin: the number at work is binomial; by its normal approximation, MARGIN standard deviations
        above the mean. Anchors count whole, and so does ``newcomer``, which works at first.
        """
        own = newcomer.blocks - newcomer.anchor_blocks
        in_common = self._in_common + newcomer.anchor_blocks - self.shared(newcomer)
        spread = math.sqrt(duty * (1 - duty) * (self._squares + own * own))
        return in_common + duty * (self.peak(newcomer) - in_common - own) + own + MARGIN * spread

    def _count(self, ticket: Ticket, change: int) -> None:
        self.active += change
        self.roots += change if ticket.parent is None else 0
        own = ticket.blocks - ticket.anchor_blocks
        self._own += change * own
        self._squares += change * own * own
        self._soon += change * (ticket.soon - ticket.anchor_blocks)
        lacks, held = growth = _growth(ticket)
        if not lacks:
            self._grown += change * held
        elif change > 0:
            insort(self._growing, growth)
        else:
            del self._growing[bisect_left(self._growing, growth)]
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


def _growth(ticket: Ticket) -> tuple[int, int]:
    """Blocks that a run lacks to its largest, and those it holds now without its anchor's."""
    return ticket.blocks - ticket.now, ticket.now - ticket.anchor_blocks
