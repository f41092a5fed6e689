import pytest
from attrs import evolve

from agentkv.kv import KVHandle

HELD = KVHandle(engine_id="e", epoch=1, owner="acme", digest="ab", length=64)


def test_a_handle_verifies_against_what_it_names() -> None:
    assert HELD.verify(evolve(HELD)) is None


@pytest.mark.parametrize(
    ("field", "value"), [("engine_id", "other"), ("epoch", 0), ("owner", "eve"), ("digest", "cd"), ("length", 80)]
)
def test_any_field_that_differs_is_named(field: str, value: object) -> None:
    reason = evolve(HELD, **{field: value}).verify(HELD)
    assert reason is not None
    assert reason.split(":")[0] == field.removesuffix("_id")


def test_the_wire_form_builds_the_same_handle() -> None:
    assert KVHandle(**HELD.as_wire()) == HELD
