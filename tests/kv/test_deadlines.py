from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv.deadlines import Deadlines

NAMES = st.sampled_from("abcd")
TIMES = st.integers(0, 9).map(float)
STEPS = st.lists(
    st.tuples(st.just("set"), NAMES, TIMES) | st.tuples(st.just("drop"), NAMES) | st.tuples(st.just("due"), TIMES)
)


@given(STEPS)
def test_it_knows_what_a_plain_mapping_of_ends_knows(steps: list[tuple[str, ...]]) -> None:
    deadlines, ends = Deadlines(), dict[str, float]()
    for kind, *arguments in steps:
        if kind == "set":
            deadlines.set(*arguments)
            ends[arguments[0]] = arguments[1]
        elif kind == "drop":
            deadlines.drop(*arguments)
            ends.pop(arguments[0], None)
        else:
            assert sorted(deadlines.due(*arguments)) == sorted(n for n, end in ends.items() if end <= arguments[0])
        assert deadlines.next == min(ends.values(), default=None)
        assert len(deadlines) == len(ends)


def test_moving_an_end_further_off_leaves_nothing_behind() -> None:
    deadlines = Deadlines()
    for second in range(1000):
        deadlines.set("a", float(second))
    assert deadlines.due(998.0) == []
    assert len(deadlines._heap) == 1
    deadlines.clear()
    assert (len(deadlines), deadlines.next) == (0, None)
