"""What is learnt of graphs, tools, tenants and agents does not grow with those that come and go."""

from agentkv.follow import Memos, ToolTimes, Trusts, WorkingSets
from agentkv.follow.recent import REMEMBERED, Recent


def test_those_asked_for_longest_ago_are_forgotten() -> None:
    recent = Recent[int, list[int]](list, {0: [0]})
    for key in range(REMEMBERED):
        recent.of(key).append(key)
    recent.of(0).append(7)
    recent.of(REMEMBERED)
    assert (len(recent), 0 in recent, 1 in recent) == (REMEMBERED, True, False)
    assert recent.of(0) == [0, 0, 7]


def test_what_is_learnt_is_bounded() -> None:
    memos, trusts, sizes, times = Memos(100), Trusts(), WorkingSets(), ToolTimes()
    for number in range(2 * REMEMBERED):
        memos.of(f"tenant {number}", "agent").remember(("tool", "{}"), "text")
        trusts.of(f"tenant {number}")
        sizes.add(f"graph {number}", 100)
        times.add(f"tool {number}", 1.0)
    assert len([*memos.items()]) == REMEMBERED
    assert all(len(each._seen) == REMEMBERED for each in (sizes, times))
    assert len(trusts._kept) == REMEMBERED
    assert sizes.expected("graph 0", 10, 1, 1000) == 10 + 4
    assert sizes.expected(f"graph {2 * REMEMBERED - 1}", 10, 1, 1000) == 110
    assert times.expected(["tool 0"]) is None
