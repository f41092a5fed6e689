"""Transfers between the pool and host memory, and the order in which they go."""

import heapq
from typing import Literal

from attrs import frozen

__all__ = ("Transfer", "TransferKind", "TransferQueue", "TransferRank")

TransferKind = Literal["demote", "promote"]

#: Who goes first in one direction: what a resume waits for, room that someone waits for, then work ahead of need.
TransferRank = Literal["resume", "room", "ahead"]
_RANKS: dict[str, int] = {"resume": 0, "room": 1, "ahead": 2}


@frozen(kw_only=True)
class Transfer:
    """One copy of a few blocks: ``blocks`` of the pool to ``slots`` of host memory (demote) or back (promote).

    ``digests`` name the contents; the three are equally long and in chain order. ``token`` is the lease whose KV
    it is, ``for_whom`` the request that waits for it. ``order``: among equals, lower is sooner. ``asked``: engine
    seconds. Numbers rise with time and are never used twice.
    """

    number: int
    kind: TransferKind
    rank: TransferRank
    blocks: tuple[int, ...]
    slots: tuple[int, ...]
    digests: tuple[bytes, ...]
    token: str
    for_whom: str = ""
    order: int = 0
    asked: float = 0.0


class TransferQueue:
    """Hands transfers out, each direction for itself, with at most ``window`` blocks of it under way.

    What is under way cannot be overtaken, so the window is what a resume's load may have to wait for; such a load
    is handed out at once, however much is under way.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._waiting: dict[TransferKind, list[tuple[int, int, int, Transfer]]] = {"demote": [], "promote": []}
        self._under_way: dict[int, Transfer] = {}
        self._blocks: dict[TransferKind, int] = {"demote": 0, "promote": 0}

    def __len__(self) -> int:
        return len(self._under_way) + sum(map(len, self._waiting.values()))

    def push(self, transfer: Transfer) -> None:
        """Add a transfer that has been decided on."""
        key = (_RANKS[transfer.rank], transfer.order, transfer.number, transfer)
        heapq.heappush(self._waiting[transfer.kind], key)

    def start(self) -> list[Transfer]:
        """The transfers to begin now, most urgent first; they are under way until ``end``."""
        started: list[Transfer] = []
        for kind, waiting in self._waiting.items():
            while waiting:
                first = waiting[0][3]
                if first.rank != "resume" and self._blocks[kind] >= self.window:
                    break
                heapq.heappop(waiting)
                self._blocks[kind] += len(first.blocks)
                self._under_way[first.number] = first
                started.append(first)
        return started

    def end(self, number: int) -> Transfer | None:
        """Take note that a transfer has ended; None where it is not under way."""
        ended = self._under_way.pop(number, None)
        if ended is not None:
            self._blocks[ended.kind] -= len(ended.blocks)
        return ended

    def withdraw(self) -> list[Transfer]:
        """Take back all that has not begun."""
        gone = self.not_begun()
        for waiting in self._waiting.values():
            waiting.clear()
        return gone

    def going(self) -> list[Transfer]:
        """What has begun and not ended."""
        return list(self._under_way.values())

    def not_begun(self) -> list[Transfer]:
        """What waits."""
        return [entry[3] for waiting in self._waiting.values() for entry in waiting]

    def waiting(self, kind: TransferKind) -> int:
        """Blocks that wait to be moved in a direction."""
        return sum(len(entry[3].blocks) for entry in self._waiting[kind])

    def under_way(self, kind: TransferKind) -> int:
        """Blocks that are being moved in a direction."""
        return self._blocks[kind]
