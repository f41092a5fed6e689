"""What happened to KV, as structured records in a bounded ring that clients read behind a cursor."""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Any, Literal

from attrs import asdict, frozen

from agentkv.kv.handle import KVHandle

__all__ = ("Record", "RecordKind", "Recorder")

RecordKind = Literal[
    "lease.grant",
    "lease.extend",
    "lease.renew",
    "lease.downgrade",
    "lease.release",
    "lease.expire",
    "lease.evict",
    "lease.demote",
    "lease.refuse",
    "admission.queue",
    "admission.admit",
    "admission.pause",
    "admission.leave",
    "admission.expire",
    "admission.refuse",
    "prefetch.drop",
    "transfer",
    "tier.wait",
    "tier.evict",
    "tier.fail",
    "reset",
    "reject",
    "error",
]


@frozen(kw_only=True)
class Record:
    """One event. ``number`` counts records since the engine's start; ``at`` is engine seconds.

    ``run`` and ``owner`` say whose KV it is, ``handle`` names it. ``blocks`` and ``size`` (bytes) say how much was
    gained or really given up. ``lease_class`` is the class of the lease concerned. ``for_whom`` is the request
    that needed the room, ``ms`` how long the operation took or, for an admission, how long the run had waited, for
    ``tier.wait``, how long the request had. A transfer's ``reason`` is its direction.
    """

    number: int
    at: float
    kind: RecordKind
    run: str = ""
    owner: str = ""
    handle: KVHandle | None = None
    lease_class: str = ""
    blocks: int = 0
    size: int = 0
    reason: str = ""
    for_whom: str = ""
    ms: float = 0.0

    def names(self, run: str) -> bool:
        """Whether it is about KV of ``run``, or about room that was made for one of its requests."""
        return self.run == run or self.for_whom.startswith(f"{run}/")

    def as_wire(self) -> dict[str, Any]:
        """The record as a JSON object."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Record":
        """The record that ``as_wire`` made a JSON object of."""
        handle = wire["handle"]
        return cls(**{**wire, "handle": None if handle is None else KVHandle(**handle)})


class Recorder:
    """Keeps the last ``capacity`` records and counts all of them by kind and lease class."""

    def __init__(self, *, bytes_per_block: int = 0, capacity: int = 4096) -> None:
        self._ring: deque[Record] = deque(maxlen=capacity)
        self.bytes_per_block = bytes_per_block
        self._next = 1
        self.counts: Counter[str] = Counter()
        self.blocks: Counter[str] = Counter()

    def add(self, kind: RecordKind, at: float, *, blocks: int = 0, **details: Any) -> None:
        """Append one record; ``details`` are fields of ``Record``."""
        size = blocks * self.bytes_per_block
        record = Record(number=self._next, at=at, kind=kind, blocks=blocks, size=size, **details)
        self._next += 1
        self._ring.append(record)
        key = f"{kind}:{record.lease_class}" if record.lease_class else kind
        self.counts[key] += 1
        self.blocks[key] += blocks

    @property
    def last(self) -> int:
        """Number of the latest record, 0 before the first: the cursor behind which only new ones come."""
        return self._next - 1

    def events(
        self, after: int = 0, limit: int = 1000, kinds: Collection[str] = (), run: str | None = None
    ) -> tuple[list[Record], int, int]:
        """Records behind the cursor ``after``, oldest first; the new cursor; how many were lost to the ring.

        At most ``limit`` are looked at; of these, only ``kinds`` are returned where some are named, and with ``run``
        only those about its KV and about KV that gave way to its requests.
        """
        oldest = self._ring[0].number if self._ring else self._next
        lost = max(0, oldest - 1 - after)
        # The ring is contiguous, so the first record wanted is found by arithmetic.
        start = max(0, after + 1 - oldest)
        found = [self._ring[i] for i in range(start, min(len(self._ring), start + limit))]
        cursor = found[-1].number if found else max(after, oldest - 1)
        wanted = [each for each in found if (not kinds or each.kind in kinds) and (run is None or each.names(run))]
        return wanted, cursor, lost
