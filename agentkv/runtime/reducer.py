"""The run's whole behaviour as a pure function: state + event → state + commands.

Replaying a journal through ``reduce`` gives the state that the run had; commands are then thrown away.
"""

from collections.abc import Iterable

from attrs import evolve

from agentkv.chain import Message
from agentkv.errors import AgentKVError, JournalError
from agentkv.runtime import branching, calls, generation
from agentkv.runtime.asking import Step, fail
from agentkv.runtime.cancelling import cancelled
from agentkv.runtime.events import (
    BranchChosen,
    BranchesListed,
    BranchFailed,
    CallFinished,
    CallStarted,
    Event,
    GenerationAsked,
    GenerationFinished,
    Inner,
    JoinTimedOut,
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
        case RunFinished() | RunFailed() | RunCancelledEvent():
            return evolve(cancelled(program, state), phase="ended", end=event), ()
        case _ if event.branch:
            return branching.deliver(program, state, event, reduce)
        case _:
            return _go_on(program, state, event)


def _go_on(program: Program, state: State, event: Inner) -> Step:
    match event:
        case GenerationAsked():
            return evolve(state, visits={**state.visits, event.node: event.visit}), ()
        case GenerationFinished():
            return generation.finished(program, state, event)
        case CallFinished():
            return calls.finished(program, state, event)
        case BranchesListed():
            return branching.begin(program, state, event.branches, event.at)
        case BranchChosen():
            return branching.chosen(program, state, event)
        case JoinTimedOut():
            return branching.timed_out(program, state, event)
        case CallStarted() | BranchFailed():
            return state, ()


def replay(program: Program, events: Iterable[Event]) -> State:
    """The state after ``events``. Raises ``JournalError`` where one cannot have come behind those before it."""
    state = State()
    for number, event in enumerate(events):
        try:
            state, _ = reduce(program, state, event)
        except Exception as error:
            raise JournalError(
                f"record {number} ({event.type!r}) of run {state.run_id!r} does not follow from those before it "
                f"({type(error).__name__}: {error}); replay it on the graph it was written by, or {JournalError.remedy}"
            ) from error
    return state


def _start(program: Program, state: State, event: RunStarted) -> Step:
    begun = evolve(state, run_id=event.run_id, messages=(Message(role="user", content=event.prompt),))
    return branching.go(program, begun, program.graph.start, event.at, text=event.prompt)
