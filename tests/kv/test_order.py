from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import Lease, eviction_key, in_order

TIMES = st.floats(0, 1000)
LEASES = st.builds(
    Lease,
    token=st.text(max_size=4),
    serial=st.integers(0, 10**6),
    run=st.just("r"),
    owner=st.just(""),
    ticket=st.just(""),
    lease_class=st.sampled_from(["anchor", "chain", "branch", "speculative"]),
    blocks=st.just((1,)),
    digests=st.just((b"1",)),
    expected_reuse=st.none() | TIMES,
    expires=TIMES,
    used=TIMES,
)


def lease(lease_class: str, serial: int = 1, reuse: float | None = None, used: float = 0.0) -> Lease:
    return Lease(
        token=f"t{serial}",
        serial=serial,
        run="r",
        owner="",
        ticket="",
        lease_class=lease_class,  # type: ignore[arg-type]
        blocks=(1,),
        digests=(b"1",),
        expected_reuse=reuse,
        expires=100.0,
        used=used,
    )


def test_classes_go_in_the_documented_order() -> None:
    mixed = [lease("anchor", 1), lease("branch", 2, 0.0), lease("chain", 3, 99.0), lease("speculative", 4, 0.0)]
    assert [each.lease_class for each in in_order(mixed)] == ["speculative", "branch", "chain", "anchor"]


def test_chains_go_by_farthest_expected_reuse_and_unknown_is_farthest() -> None:
    chains = [lease("chain", 1, 5.0), lease("chain", 2, 50.0), lease("chain", 3, None), lease("chain", 4, 1.0)]
    assert [each.serial for each in in_order(chains)] == [3, 2, 1, 4]


def test_anchors_go_by_least_recent_use_whatever_their_expected_reuse() -> None:
    anchors = [
        lease("anchor", 1, 99.0, used=3.0),
        lease("anchor", 2, 0.0, used=1.0),
        lease("anchor", 3, None, used=2.0),
    ]
    assert [each.serial for each in in_order(anchors)] == [2, 3, 1]


@given(st.lists(LEASES, max_size=12, unique_by=lambda each: each.serial))
def test_the_order_is_total(leases: list[Lease]) -> None:
    keys = [eviction_key(each) for each in leases]
    assert len(set(keys)) == len(keys)
    ranks = ["speculative", "branch", "chain", "anchor"]
    placed = [ranks.index(each.lease_class) for each in in_order(leases)]
    assert placed == sorted(placed)
    assert in_order(reversed(leases)) == in_order(leases)
