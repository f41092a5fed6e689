"""Where two sequences part, whatever they are made of."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from agentkv.common_prefix import common_prefix

ids = st.lists(st.integers(0, 1))


@given(one=ids, other=ids, start=ids)
def test_it_is_as_long_as_items_are_equal(one: list[int], other: list[int], start: list[int]) -> None:
    one, other = start + one, start + other
    expected = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))
    assert common_prefix(one, other) == common_prefix(other, one) == expected
    assert common_prefix(tuple(one), other) == expected
    assert common_prefix("".join(map(str, one)), "".join(map(str, other))) == expected
