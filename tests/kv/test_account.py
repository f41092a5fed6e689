"""The scheduler's own sums, by hand."""

from agentkv.kv import WorkAccount


def test_an_answered_request_costs_what_it_did_not_find() -> None:
    work = WorkAccount()
    work.started("a", 96)
    work.ended("a", prompt=200, computed=230, answered=True)
    assert work.totals() == {
        "answered": {"requests": 1, "prompt": 200, "computed": 104},
        "unanswered": {"requests": 0, "computed": 0},
        "recomputed": 0,
    }


def test_one_that_is_cut_off_costs_what_it_got_to() -> None:
    work = WorkAccount()
    work.started("a", 96)
    work.ended("a", prompt=200, computed=160, answered=False)
    # Never started, and started but ended with output that is no prompt.
    work.ended("b", prompt=200, computed=0, answered=False)
    work.started("c", 0)
    work.ended("c", prompt=50, computed=60, answered=False)
    assert work.totals()["unanswered"] == {"requests": 3, "computed": 64 + 50}


def test_after_a_preemption_only_what_was_lost_is_computed_again() -> None:
    work = WorkAccount()
    work.started("a", 32)
    work.preempted("a", 210)
    assert work.awaits_restart
    work.started("a", 96)
    assert not work.awaits_restart
    work.ended("a", prompt=200, computed=230, answered=True)
    assert work.totals()["answered"]["computed"] == 200 - 32
    assert work.totals()["recomputed"] == 210 - 96


def test_one_that_never_came_back_from_a_preemption_has_cost_what_it_lost() -> None:
    work = WorkAccount()
    work.started("a", 32)
    work.preempted("a", 80)
    work.ended("a", prompt=200, computed=0, answered=False)
    assert work.totals()["unanswered"]["computed"] == 48
    assert not work.awaits_restart


def test_a_request_that_started_before_it_was_watched_is_left_out() -> None:
    work = WorkAccount()
    work.preempted("a", 80)
    assert not work.awaits_restart
