"""The simulated engine's loop: a scheduler taken through time, step by step."""

from collections.abc import Callable

from agentkv.engines.clock import Timer, VirtualClock
from agentkv.engines.sim_machine import Machine
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step

__all__ = ("StepLoop",)


class StepLoop:
    """Plans steps and lets their time pass, as long as there is work.

    With ``machine.async_scheduling`` the next step is planned as soon as one begins, as vLLM does to keep a GPU
    busy: what arrives meanwhile waits for the step that runs and for the one already planned. ``planned`` is
    called after each planning, ``deliver`` with the requests that got a token, ``died`` with what either raised.
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
        self._ahead: Step | None = None

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
        step = self._plan()
        if step is not None:
            self._run(step)

    def _plan(self) -> Step | None:
        step = self._scheduler.schedule()
        self._planned()
        for entry, _ in step.rows:
            if entry.started_at is None:
                entry.started_at = self._clock.now()
        return step if step.rows else None

    def _run(self, step: Step) -> None:
        self.steps += 1
        end = self._clock.now() + self._machine.cost.seconds(step)
        self._timer = self._clock.call_at(end, lambda: self.guard(lambda: self._end(step)))
        if self._machine.async_scheduling:
            self._ahead = self._plan()

    def _end(self, step: Step) -> None:
        self._timer = None
        self._deliver(self._scheduler.complete(step))
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._run(ahead)
        elif self._scheduler.running or self._scheduler.waiting:
            self.wake()
