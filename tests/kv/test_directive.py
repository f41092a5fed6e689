import json
import math

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from agentkv.errors import DirectiveError
from agentkv.kv import Directive, KVHandle, Rejected
from agentkv.kv.directive import MAX_BYTES

HANDLE = KVHandle(engine_id="e", epoch=3, owner="acme", digest="ab12", length=64)
NAMES = st.text(min_size=1, max_size=20)
DIRECTIVES = st.builds(
    Directive,
    kind=st.sampled_from(["generate", "prefill"]),
    run=NAMES,
    owner=st.just("") | NAMES,
    lease_class=st.sampled_from(["anchor", "chain", "branch", "speculative"]),
    resume=st.booleans(),
    expected_reuse=st.none() | st.floats(0, 3600),
    ttl=st.floats(0, 3600),
    lease=st.none() | NAMES,
    ticket=st.none() | NAMES,
    order=st.integers(-(2**53), 2**53),
    handle=st.none() | st.just(HANDLE),
)


@given(DIRECTIVES)
def test_what_the_client_writes_the_engine_reads(directive: Directive) -> None:
    assert Directive.from_wire(directive.to_wire()) == directive
    assert Directive.from_wire(directive.as_wire()) == directive


def test_absent_fields_take_their_defaults() -> None:
    assert Directive.from_wire('{"v":1,"run":"r"}') == Directive(run="r")


def test_the_wire_carries_a_version_and_calls_the_class_class() -> None:
    wire = json.loads(Directive(run="r", lease_class="branch").to_wire())
    assert wire["v"] == 1
    assert wire["class"] == "branch"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", ""),
        ("run", "x" * 257),
        ("kind", "train"),
        ("lease_class", "mine"),
        ("ttl", -1.0),
        ("ttl", math.inf),
        ("ttl", math.nan),
        ("expected_reuse", 1e9),
        ("order", 1.5),
        ("order", 2**60),
        ("resume", 1),
        ("expected_reuse", 10**400),
        ("lease", 7),
        ("handle", "h"),
    ],
)
def test_the_client_refuses_to_send_a_field_out_of_bounds(field: str, value: object) -> None:
    bad = evolve(Directive(run="r7"), **{field: value})
    wire_name = "class" if field == "lease_class" else field
    with pytest.raises(DirectiveError, match=wire_name):
        bad.to_wire()


def test_the_client_refuses_a_directive_that_is_too_long() -> None:
    long = Directive(run="é" * 256, owner="é" * 256, lease="é" * 256, ticket="é" * 256)
    with pytest.raises(DirectiveError, match="bytes"):
        long.to_wire()


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ("{", "unreadable"),
        ("[]", "not a JSON object"),
        (None, "NoneType"),
        (b"{}", "bytes"),
        ('{"v":2,"run":"r"}', "v: must be 1"),
        ('{"v":true,"run":"r"}', "v: must be 1"),
        ('{"v":1}', "run: missing"),
        ('{"v":1,"run":"r","pin":true}', "pin: unknown field"),
        ({"v": 1, "run": "r", 3: 4}, "unknown field"),
        ({"v": 1, "run": ["r"]}, "run"),
        ({"v": 1, "run": "r", "handle": {"engine_id": "e"}}, "handle"),
        ({"v": 1, "run": "r", "handle": {**HANDLE.as_wire(), "length": "64"}}, "handle: length"),
        ('{"v":1,"run":"r","ttl":NaN}', "ttl"),
        ({"v": 1, "run": "r", "ttl": 10**400}, "ttl: must be seconds"),
        ("[" * (MAX_BYTES - 1), "unreadable"),
        (" " * (MAX_BYTES + 1), "longer"),
        ({"v": 1, "run": "r", "kind": []}, "kind"),
    ],
)
def test_the_engine_rejects_with_a_reason(wire: object, says: str) -> None:
    read = Directive.from_wire(wire)
    assert isinstance(read, Rejected)
    assert says in read.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["v", "run", "kind", "class", "ttl", "handle", "lease", "order", "owner", "resume", "expected_reuse"]


@given(st.text(max_size=200) | st.binary(max_size=50) | JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
@example(float("nan"))
def test_reading_never_raises(wire: object) -> None:
    assert isinstance(Directive.from_wire(wire), Directive | Rejected)
    as_text = json.dumps(wire) if not isinstance(wire, bytes) else repr(wire)
    assert isinstance(Directive.from_wire(as_text), Directive | Rejected)
