"""What the client believes to be cached."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.report import Residency

KEYS = [bytes([n]) for n in range(20)]


def test_hit_leaves_at_least_the_last_token() -> None:
    residency = Residency(32)
    residency.mark(None, KEYS[:8], "generation", "run")
    assert residency.hit(None, KEYS[:8], 256) == 224
    assert residency.hit(None, KEYS[:8], 257) == 256


def test_a_hole_ends_the_hit() -> None:
    residency = Residency(32)
    residency.mark(None, KEYS[:2] + KEYS[3:8], "generation", "run")
    assert residency.resident(None, KEYS[:8]) == 64


def test_salts_are_apart() -> None:
    residency = Residency(32)
    residency.mark("a", KEYS[:3], "generation", "run")
    assert residency.resident("b", KEYS[:3]) == 0
    assert residency.fate("b", KEYS[0]) == "salted"
    assert residency.fate("a", KEYS[0]) == "seen"
    assert residency.fate("a", KEYS[9]) == "unseen"


def test_a_prefetched_block_is_used_once() -> None:
    residency = Residency(32)
    residency.mark(None, KEYS[:1], "prefetch", "run")
    assert residency.use(None, KEYS[0]) == "run"
    assert residency.use(None, KEYS[0]) is None


def test_a_block_computed_again_is_no_prefetch_any_more() -> None:
    residency = Residency(32)
    residency.mark(None, KEYS[:1], "prefetch", "run")
    residency.mark(None, KEYS[:1], "generation", "run")
    assert residency.use(None, KEYS[0]) is None


@given(st.lists(st.tuples(st.sampled_from([None, "a"]), st.integers(0, 19), st.integers(0, 19), st.booleans())))
def test_books_balance_and_stay_bounded(operations: list[tuple[str | None, int, int, bool]]) -> None:
    residency = Residency(32, capacity=10)
    for salt, start, end, mark in operations:
        if mark:
            residency.mark(salt, KEYS[start:end], "prefetch", "run")
        elif end - start <= 10:
            residency.touch(salt, KEYS[start:end], "run")
        residency.check_integrity()
        assert sum(residency.fate(s, key) == "seen" for s in (None, "a") for key in KEYS) <= 10
