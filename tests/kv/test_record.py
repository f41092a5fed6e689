from agentkv.kv import Recorder


def test_events_come_behind_a_cursor_and_never_twice() -> None:
    recorder = Recorder(bytes_per_block=100)
    for n in range(5):
        recorder.add("lease.grant", float(n), blocks=n, lease_class="chain")
    first, cursor, lost = recorder.events(0, limit=3)
    rest, end, _ = recorder.events(cursor)
    assert [record.number for record in first + rest] == [1, 2, 3, 4, 5]
    assert (lost, recorder.events(end)) == (0, ([], 5, 0))
    assert rest[-1].size == 400


def test_a_full_ring_says_what_it_lost() -> None:
    recorder = Recorder(capacity=4)
    for n in range(10):
        recorder.add("reject", float(n))
    found, cursor, lost = recorder.events(2)
    assert [record.number for record in found] == [7, 8, 9, 10]
    assert (cursor, lost) == (10, 4)


def test_counts_are_by_kind_and_class() -> None:
    recorder = Recorder()
    recorder.add("lease.evict", 0.0, blocks=3, lease_class="chain")
    recorder.add("lease.evict", 0.0, blocks=2, lease_class="anchor")
    recorder.add("reject", 0.0)
    assert recorder.counts == {"lease.evict:chain": 1, "lease.evict:anchor": 1, "reject": 1}
    assert recorder.blocks["lease.evict:chain"] == 3


def test_a_record_is_json() -> None:
    recorder = Recorder()
    recorder.add("lease.evict", 1.5, run="r", reason="room", for_whom="q")
    wire = recorder.events()[0][0].as_wire()
    assert wire["for_whom"] == "q"
    assert wire["handle"] is None


def test_kinds_are_chosen_and_the_cursor_passes_the_others() -> None:
    recorder = Recorder()
    for kind in ("lease.renew", "lease.evict", "lease.renew"):
        recorder.add(kind, 0.0)  # type: ignore[arg-type]
    found, cursor, lost = recorder.events(kinds=("lease.evict",))
    assert ([record.number for record in found], cursor, lost) == ([2], 3, 0)
