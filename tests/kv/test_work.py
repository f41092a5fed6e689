"""The order of work."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentkv.kv import COLD, Directive, Rank, WaitingOrder, rank_of


def directive(**fields: Any) -> Directive:
    return Directive(run="r", **fields)


def test_resumes_go_before_cold_prompts_and_prefetches_last() -> None:
    in_order = [
        rank_of(directive(kind="prefill"), preempted=True),
        rank_of(directive(resume=True), preempted=False),
        rank_of(directive(resume=True, order=1), preempted=False),
        rank_of(None, preempted=False),
        rank_of(directive(order=3), preempted=False),
        rank_of(directive(kind="prefill", resume=True), preempted=False),
    ]
    assert in_order == sorted(in_order)
    # A low order is no way past those who send no directive.
    assert rank_of(directive(order=-5), preempted=False) == COLD


class Line:
    def __init__(self, max_overtakes: int) -> None:
        self.order = WaitingOrder(max_overtakes)
        self.queue: list[tuple[str, Rank]] = []

    def add(self, name: str, rank: Rank) -> int:
        place = self.order.place(self.queue, rank, rank_of=lambda each: each[1], name=lambda each: each[0])
        self.queue.insert(place, (name, rank))
        return place


def test_nobody_but_a_prefetch_is_passed_for_ever() -> None:
    line = Line(max_overtakes=3)
    line.add("ahead", (3, 0))
    line.add("cold", COLD)
    assert [line.add(f"resume{i}", (1, 0)) for i in range(5)] == [0, 1, 2, 4, 5]
    assert [name for name, _ in line.queue] == ["resume0", "resume1", "resume2", "cold", "resume3", "resume4", "ahead"]


def test_a_line_that_is_never_empty_forgets_who_has_left_it_and_nobody_else() -> None:
    line = Line(max_overtakes=10_000)
    line.add("ahead", (3, 0))
    line.add("waits long", (2, 9))
    for number in range(4000):
        line.add(f"cold{number}", COLD)
        line.add(f"resume{number}", (1, 0))
        del line.queue[:2]
    assert len(line.order._overtaken) <= 1100
    assert line.order._overtaken["waits long"] == 8000


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_with_no_bound_the_line_is_a_stable_sort(ranks: list[Rank]) -> None:
    line = Line(max_overtakes=1000)
    for number, rank in enumerate(ranks):
        line.add(str(number), rank)
    assert line.queue == sorted(line.queue, key=lambda each: (each[1], int(each[0])))
