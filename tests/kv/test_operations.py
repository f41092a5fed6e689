"""Operations as a client sends them: every answer is an object, nothing raises, nothing is half done."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import perform
from agentkv.kv.operations import OPERATIONS

Make = Callable[..., Any]


def test_a_lease_is_renewed_verified_and_released(make_bench: Make) -> None:
    bench = make_bench()
    grant = bench.run(4, ttl=5.0)
    renewal = {"token": grant.token, "ttl": 50, "expected_reuse": 3, "class": "branch"}
    assert perform(bench.policy, "renew", {"leases": [renewal, {"token": "no", "ttl": 1}]}, 1.0) == {
        "reasons": [None, "lease: no such token"]
    }
    lease = bench.policy.leases.table.get(grant.token)
    assert (lease.expires, lease.expected_reuse, lease.lease_class) == (51.0, 4.0, "branch")
    handle = grant.handle.as_wire()
    assert perform(bench.policy, "verify", {"token": grant.token, "handle": handle}, 2.0) == {"reason": None}
    longer = {**handle, "length": 999}
    assert perform(bench.policy, "verify", {"token": grant.token, "handle": longer}, 2.0)["reason"].startswith("length")
    assert perform(bench.policy, "release", {"tokens": [grant.token]}, 3.0) == {"reasons": [None]}
    assert len(bench.policy.leases.table) == 0


def test_a_malformed_renewal_leaves_every_lease_as_it_was(make_bench: Make) -> None:
    bench = make_bench()
    grant = bench.run(4, ttl=5.0)
    leases = [{"token": grant.token, "ttl": 50}, {"token": grant.token, "ttl": "long"}]
    assert perform(bench.policy, "renew", {"leases": leases}, 1.0) == {"error": "ttl: must be a number of seconds"}
    assert bench.policy.leases.table.get(grant.token).expires == 5.0


def test_runs_are_admitted_seen_and_ended(make_bench: Make) -> None:
    bench = make_bench(kv_pool_ratio=1.0)
    first = perform(bench.policy, "admit", {"run": "a", "blocks": 80, "ttl": 9}, 0.0)
    second = perform(bench.policy, "admit", {"run": "b", "blocks": 80, "ttl": 9}, 0.0)
    assert (first["state"], second["state"], second["position"]) == ("admitted", "queued", 1)
    tickets = [first["ticket"], second["ticket"], "forged"]
    states = [
        run and run["state"] for run in perform(bench.policy, "heartbeat", {"tickets": tickets, "ttl": 9}, 1.0)["runs"]
    ]
    assert states == ["admitted", "queued", None]
    assert perform(bench.policy, "update", {"ticket": second["ticket"], "blocks": 10}, 2.0) == {"reason": None}
    assert perform(bench.policy, "leave", {"tickets": tickets}, 3.0)["reasons"] == [
        None,
        None,
        "ticket: no such ticket",
    ]
    child = {"run": "c", "blocks": 1, "ttl": 9, "parent": "forged"}
    assert perform(bench.policy, "admit", child, 3.0) == {"refused": "parent: no such ticket"}


def test_events_are_read_behind_a_cursor(make_bench: Make) -> None:
    bench = make_bench()
    bench.run(2, ttl=5.0)
    first = perform(bench.policy, "events", {"after": 0, "limit": 1}, 0.0)
    assert [event["kind"] for event in first["events"]] == ["lease.grant"]
    assert perform(bench.policy, "events", {"after": first["cursor"]}, 0.0)["events"] == []
    assert perform(bench.policy, "stats", {}, 0.0)["leases"] == 1


@pytest.mark.parametrize(
    ("operation", "payload", "error"),
    [
        ("no such", {}, "operation: must be one of info, reset, renew"),
        (["renew"], {}, "operation: must be one of"),
        ("renew", [], "payload: must be a JSON object"),
        ("renew", {"leases": [{"token": "t", "ttl": 10**400}]}, "ttl: must be from 0 to 3600 seconds"),
        ("renew", {"leases": [{"token": "t", "ttl": float("nan")}]}, "ttl: must be from 0 to 3600 seconds"),
        ("renew", {"leases": [{"token": "t", "ttl": 1, "class": []}]}, "class: must be one of"),
        ("renew", {"leases": [{"token": "t", "ttl": 1, "class": "royal"}]}, "class: must be one of"),
        ("renew", {"leases": [{"token": "t", "ttl": 3601}]}, "ttl: must be from 0 to 3600"),
        ("release", {"tokens": [1]}, "tokens: must be a list"),
        ("verify", {"token": "t", "handle": {"epoch": 1}}, "handle: must be an object with engine_id"),
        ("admit", {"run": "r", "blocks": True, "ttl": 1}, "blocks: must be a whole number"),
        ("admit", {"run": "x" * 257, "blocks": 1, "ttl": 1}, "run: must be a string of at most 256"),
    ],
)
def test_a_malformed_call_says_which_field(make_bench: Make, operation: Any, payload: Any, error: str) -> None:
    assert perform(make_bench().policy, operation, payload, 0.0)["error"].startswith(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(("leases", "tokens", "token", "handle", "run", "blocks", "ttl", "tickets", "ticket", "after"))


@given(st.sampled_from(sorted(OPERATIONS)), st.dictionaries(FIELDS, JSON, max_size=5))
def test_nothing_raises(bench_class: Make, operation: str, payload: dict[str, Any]) -> None:
    assert isinstance(perform(bench_class().policy, operation, payload, 0.0), dict)


def test_occupancy_counts_a_block_once_for_the_class_that_goes_last(make_bench: Make) -> None:
    bench = make_bench()
    anchor = bench.run(4, ttl=50.0, lease_class="anchor")
    blocks = bench.policy.leases.table.get(anchor.token).blocks
    bench.run(10, ttl=50.0, hits=blocks)
    bench.run(3, ttl=50.0, lease_class="speculative")
    assert perform(bench.policy, "occupancy", {}, 0.0) == {"anchor": 4, "chain": 6, "branch": 0, "speculative": 3}


def test_events_of_some_kinds_are_asked_for_as_a_list(make_bench: Make) -> None:
    bench = make_bench()
    bench.run(4, ttl=50.0)
    assert perform(bench.policy, "events", {"kinds": ["lease.evict"]}, 0.0)["events"] == []
    assert perform(bench.policy, "events", {"kinds": "lease.evict"}, 0.0) == {"error": "kinds: must be a list"}
