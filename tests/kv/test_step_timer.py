"""How long steps take that may be planned before the last one has ended."""

from agentkv.kv import StepTimer


def timed(*planned: str) -> StepTimer[str]:
    timer: StepTimer[str] = StepTimer()
    for at, step in enumerate(planned):
        timer.planned(step, step.upper(), float(at))
    return timer


def test_a_step_that_was_queued_behind_another_began_when_that_one_had_ended() -> None:
    timer = timed("a", "b")
    assert timer.ended("a", 5.0) == ("A", 5.0)
    assert timer.ended("b", 7.0) == ("B", 2.0)
    timer.planned("c", "C", 10.0)
    assert timer.ended("c", 11.0) == ("C", 1.0)


def test_steps_that_never_ended_are_forgotten_and_those_planned_behind_are_not() -> None:
    timer = timed("a", "b", "c")
    assert timer.ended("b", 5.0) == ("B", 4.0)
    assert timer.ended("a", 5.5) is None
    assert timer.ended("c", 6.0) == ("C", 0.5)


def test_a_step_that_nobody_planned_costs_the_others_nothing_but_its_time() -> None:
    timer = timed("a")
    assert timer.ended("other", 4.0) is None
    assert timer.ended("a", 6.0) == ("A", 2.0)
