from typing import Any

from agentkv.kv import Record
from agentkv.report import Incident, incident_lines, incidents


def record(kind: Any, **more: Any) -> Record:
    return Record(number=1, at=0.0, kind=kind, **more)


def evicted(blocks: int, for_whom: str = "b/1") -> Record:
    return record(
        "lease.evict", lease_class="chain", reason="room", for_whom=for_whom, blocks=blocks, size=blocks * 1_000_000
    )


def test_the_ordinary_course_is_no_incident() -> None:
    ordinary: list[Any] = ["lease.grant", "lease.extend", "lease.renew", "lease.release"]
    ordinary += ["admission.admit", "admission.leave"]
    assert incidents(record(kind) for kind in ordinary) == ()
    assert incident_lines(()) == []


def test_incidents_are_summed_by_kind_class_reason_and_request() -> None:
    found = incidents([evicted(3), record("admission.queue", reason="position 1"), evicted(4), evicted(1, "c/1")])
    assert found == (
        Incident(
            kind="lease.evict", lease_class="chain", reason="room", for_whom="b/1", times=2, blocks=7, size=7_000_000
        ),
        Incident(kind="admission.queue", lease_class="", reason="position 1", for_whom="", times=1),
        Incident(
            kind="lease.evict", lease_class="chain", reason="room", for_whom="c/1", times=1, blocks=1, size=1_000_000
        ),
    )
    waits = incidents([record("tier.wait", for_whom="b/1", ms=each) for each in (20.0, 1400.4)])
    assert incident_lines(waits)[1:] == ["  tier.wait  2 times, 1,420 ms, for b/1"]
    assert incident_lines(found)[1:3] == [
        "  lease.evict chain  2 times, 7 blocks, 7.0 MB: room, for b/1",
        "  admission.queue  1 time: position 1",
    ]
