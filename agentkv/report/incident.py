"""What an engine did to KV beside the ordinary course of leases, summed up for a reader."""

from collections.abc import Iterable

from attrs import evolve, frozen

from agentkv.counted import counted
from agentkv.kv import Record

__all__ = ("Incident", "incident_lines", "incidents")

_ORDINARY = frozenset(
    ("lease.grant", "lease.extend", "lease.renew", "lease.release", "admission.admit", "admission.leave", "transfer")
)


@frozen(kw_only=True)
class Incident:
    """Records of one ``kind``, lease class and reason; ``for_whom`` is the request that needed the room.

    ``blocks`` and ``size`` (bytes) sum what was really given up, ``ms`` how long it took or was waited for.
    """

    kind: str
    lease_class: str
    reason: str
    for_whom: str
    times: int = 0
    blocks: int = 0
    size: int = 0
    ms: float = 0.0

    def line(self) -> str:
        """The incident for a terminal."""
        what = " ".join(part for part in (self.kind, self.lease_class) if part)
        much = f", {counted(self.blocks, 'block')}, {self.size / 1e6:.1f} MB" if self.blocks else ""
        time = f", {self.ms:,.0f} ms" if self.ms else ""
        why = f": {self.reason}" if self.reason else ""
        whom = f", for {self.for_whom}" if self.for_whom else ""
        return f"  {what}  {counted(self.times, 'time')}{much}{time}{why}{whom}"


def incidents(records: Iterable[Record]) -> tuple[Incident, ...]:
    """The records that are not of the ordinary course, summed up, in order of first appearance."""
    found: dict[Incident, Incident] = {}
    for record in records:
        if record.kind in _ORDINARY:
            continue
        key = Incident(kind=record.kind, lease_class=record.lease_class, reason=record.reason, for_whom=record.for_whom)
        seen = found.get(key, key)
        found[key] = evolve(
            seen,
            times=seen.times + 1,
            blocks=seen.blocks + record.blocks,
            size=seen.size + record.size,
            ms=seen.ms + record.ms,
        )
    return tuple(found.values())


def incident_lines(found: Iterable[Incident]) -> list[str]:
    """A heading and a line for each; nothing where there are none."""
    lines = [each.line() for each in found]
    return ["KV that gave way, and what else the engine did", *lines] if lines else []
