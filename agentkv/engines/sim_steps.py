"""The simulated engine's loop: a scheduler taken through time, step by step."""

from collections.abc import Callable

from attrs import frozen

from agentkv.engines.clock import Timer, VirtualClock
from agentkv.engines.sim_machine import Machine
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step

__all__ = ("StepLoop",)


@frozen
class _Flight:
    """A step on its way: when the host has launched it, and when it has run."""

    step: Step
    launched_at: float
    ends_at: float


class StepLoop:
    """Plans steps and lets their time pass, as long as there is work.

    With ``machine.async_scheduling`` the next step is planned as soon as one begins, as vLLM does to keep a GPU
    busy: what arrives meanwhile waits for the step that runs and for the one already planned, and the tokens of the
    one that runs come when it has ended and the host has launched the next. ``planned`` is called after each
    planning, ``deliver`` with the requests that got a token, ``died`` with what either raised.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: VirtualClock,
        machine: Machine,
        *,
        planned: Callable[[], None],
        deliver: Callable[[list[SimRequest]], None],
        died: Callable[[Exception], None],
    ) -> None:
        self.steps = 0
        self._scheduler, self._clock, self._machine = scheduler, clock, machine
        self._planned, self._deliver, self._died = planned, deliver, died
        self._timer: Timer | None = None
        self._ahead: _Flight | None = None
        self._busy_until = 0.0

    def wake(self) -> None:
        """Begin a step, unless one is running or about to begin."""
        # By a timer that is due now: whoever else asks at this instant gets into the same step.
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now(), lambda: self.guard(self._begin))

    def stop(self) -> None:
        """Begin no step any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ahead = None

    def guard(self, work: Callable[[], None]) -> None:
        """Do ``work`` of a timer: nobody awaits one, so what it raises would leave callers waiting for ever."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - handed on
            self._died(error)

    def _begin(self) -> None:
        self._timer = None
        first = self._plan_and_launch()
        if first is not None:
            self._run(first)

    def _plan_and_launch(self) -> _Flight | None:
        step = self._plan()
        return None if step is None else self._launch(step)

    def _launch(self, step: Step) -> _Flight:
        now, cost = self._clock.now(), self._machine.cost
        launched_at = now + cost.launch_seconds(step)
        self._busy_until = max(max(self._busy_until, now) + cost.seconds(step), launched_at)
        return _Flight(step, launched_at, self._busy_until)

    def _plan(self) -> Step | None:
        step = self._scheduler.schedule()
        self._planned()
        for entry, _ in step.rows:
            if entry.started_at is None:
                entry.started_at = self._clock.now()
        return step if step.rows else None

    def _run(self, flight: _Flight) -> None:
        self.steps += 1
        if not self._machine.async_scheduling:
            self._at(flight.ends_at, lambda: self._end(flight.step))
        elif flight.launched_at > self._clock.now():
            self._at(flight.launched_at, lambda: self._look_ahead(flight))
        else:
            self._look_ahead(flight)

    def _look_ahead(self, flight: _Flight) -> None:
        self._ahead = ahead = self._plan_and_launch()
        ends_at = flight.ends_at if ahead is None else max(flight.ends_at, ahead.launched_at)
        self._at(ends_at, lambda: self._end(flight.step))

    def _at(self, moment: float, work: Callable[[], None]) -> None:
        self._timer = self._clock.call_at(moment, lambda: self.guard(work))

    def _end(self, step: Step) -> None:
        self._timer = None
        self._deliver(self._scheduler.complete(step))
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._run(ahead)
        elif self._scheduler.running or self._scheduler.waiting:
            self.wake()
