"""The run's whole behaviour as a pure function: state + event → state + commands.

Replaying a journal through ``reduce`` gives the state that the run had; commands are then thrown away.
"""

from collections.abc import Iterable

from attrs import evolve

from agentkv.chain import Message
from agentkv.errors import AgentKVError
from agentkv.runtime import calls, generation
from agentkv.runtime.asking import Step, ask, fail
from agentkv.runtime.events import (
    CallFinished,
    CallStarted,
    Event,
    GenerationAsked,
    GenerationFinished,
    RunCancelledEvent,
    RunFailed,
    RunFinished,
    RunStarted,
)
from agentkv.runtime.program import Program
from agentkv.runtime.state import State

__all__ = ("Step", "reduce", "replay")


def reduce(program: Program, state: State, event: Event) -> Step:
    """The next state, and what the shell has to do. Events that come after the end change nothing.

    What cannot be rendered or routed fails the run: live and in a replay alike.
    """
    if state.end is not None:
        return state, ()
    try:
        return _reduce(program, state, event)
    except AgentKVError as error:
        if isinstance(event, RunFinished | RunFailed | RunCancelledEvent):
            return evolve(state, phase="ended", end=event), ()
        return fail(state, type(error).__name__, str(error), event.at)


def _reduce(program: Program, state: State, event: Event) -> Step:
    match event:
        case RunStarted():
            return _start(program, state, event)
        case GenerationAsked():
            return evolve(state, visits={**state.visits, event.node: event.visit}), ()
        case GenerationFinished():
            return generation.finished(program, state, event)
        case CallStarted():
            return state, ()
        case CallFinished():
            return calls.finished(program, state, event)
        case RunFinished() | RunFailed() | RunCancelledEvent():
            return evolve(calls.cancelled(program, state), phase="ended", end=event), ()


def replay(program: Program, events: Iterable[Event]) -> State:
    """The state after ``events``."""
    state = State()
    for event in events:
        state, _ = reduce(program, state, event)
    return state


def _start(program: Program, state: State, event: RunStarted) -> Step:
    begun = evolve(state, run_id=event.run_id, messages=(Message(role="user", content=event.prompt),))
    return ask(program, begun, program.graph.start, event.at)
