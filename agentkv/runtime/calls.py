"""The reducer's part about tool calls: starting them, gathering exactly one result for each, going on."""

from attrs import evolve

from agentkv.graph import END
from agentkv.runtime.asking import Step, ask, fail, past_limits
from agentkv.runtime.branching import go
from agentkv.runtime.events import CallFinished
from agentkv.runtime.program import Program
from agentkv.runtime.rendering import result_messages, tips
from agentkv.runtime.spent import Spent
from agentkv.runtime.state import CallTool, Follow, Slot, State
from agentkv.tools import Outcome, ToolCall

__all__ = ("begin", "finished")

# Outcomes that count against a tool's retries; the model is told to try again.
RETRIED = ("invalid", "retry", "unknown_tool")


def begin(program: Program, state: State, node: str, calls: tuple[ToolCall, ...], at: float) -> Step:
    """Hand ``calls`` to the tool node ``node``."""
    if (over := past_limits(program, state, node, Spent(calls=len(calls)), at)) is not None:
        return over
    offered = program.nodes[state.asking].tools
    known = tuple(sorted(offered))
    slots = tuple(
        Slot(call=call, outcome=None if call.name in offered else Outcome.unknown_tool(call.name, known))
        for call in calls
    )
    arrived = tuple(i for i, slot in enumerate(slots) if slot.outcome is not None)
    state = evolve(
        state,
        phase="calling",
        node=node,
        slots=slots,
        arrived=arrived,
        numbered=state.numbered + len(calls),
        spent=state.spent.plus(Spent(calls=len(calls))),
    )
    return _go_on(program, state, at)


def finished(program: Program, state: State, event: CallFinished) -> Step:
    """Note a call's result, and go on when it was the last."""
    outcome = Outcome(event.status, event.text, event.abandoned, event.note)  # type: ignore[arg-type]  # journalled as text
    if state.slots[event.index].outcome is not None:
        return state, ()
    state = _with_slot(state, event.index, evolve(state.slots[event.index], outcome=outcome))
    return _go_on(program, evolve(state, arrived=(*state.arrived, event.index)), event.at)


def _count(program: Program, state: State) -> tuple[State, str]:
    """Count the step's results against their tools' retries; the second value says why the run must fail, if it must.

    A tool whose calls all went wrong has failed once, however many they were.
    """
    asking = program.nodes[state.asking]
    retries, reason = dict(state.retries), ""
    for name in dict.fromkeys(slot.call.name for slot in state.slots):
        outcomes = [slot.outcome for slot in state.slots if slot.call.name == name and slot.outcome is not None]
        wrong = all(outcome.status in RETRIED for outcome in outcomes)
        retries[name] = retries.get(name, 0) + 1 if wrong else 0
        allowed = asking.tools[name].retries if name in asking.tools else asking.agent.agent.retries
        if retries[name] > allowed and not reason:
            often = f"failed {retries[name]} times in a row, with retries={allowed}"
            reason = f"node {state.node!r}: tool {name!r} {often}: {outcomes[-1].whole}"
    return evolve(state, retries=retries), reason


def _go_on(program: Program, state: State, at: float) -> Step:
    if all(slot.outcome is not None for slot in state.slots):
        return _all_done(program, state, at)
    ahead = tips(program, state)
    state = evolve(state, known={**state.known, **{tip.agent: len(tip.chain) for tip in ahead}})
    starting = _startable(program, state)
    for command in starting:
        state = _with_slot(state, command.index, evolve(state.slots[command.index], started=True))
    waiting_for = tuple(slot.call.name for slot in state.slots if slot.outcome is None)
    return state, (*starting, Follow(tips=ahead, waiting_for=waiting_for))


def _startable(program: Program, state: State) -> tuple[CallTool, ...]:
    """Calls to start now: a ``sequential`` tool waits for all before it, and all after it wait for it."""
    node = program.graph.nodes[state.node]
    tools = program.nodes[state.asking].tools
    running = sum(slot.started and slot.outcome is None for slot in state.slots)
    room = len(state.slots) if node.max_concurrency is None else node.max_concurrency - running
    commands: list[CallTool] = []
    open_before = False
    for index, slot in enumerate(state.slots):
        if slot.outcome is not None:
            continue
        sequential = tools[slot.call.name].sequential
        if sequential and open_before:
            break
        if not slot.started and len(commands) < room:
            attempt = state.retries.get(slot.call.name, 0) + 1
            commands.append(
                CallTool(node=state.node, asking=state.asking, index=index, call=slot.call, attempt=attempt)
            )
        if sequential:
            break
        open_before = True
    return tuple(commands)


def _all_done(program: Program, state: State, at: float) -> Step:
    state, failed = _count(program, state)
    wrong = any(slot.outcome is not None and slot.outcome.status in RETRIED for slot in state.slots)
    results = tuple(message for message in result_messages(program, state) if message is not None)
    state = evolve(state, messages=(*state.messages, *results), slots=(), arrived=())
    if failed:
        return fail(state, "ModelOutputError", failed, at)
    target = program.graph.after(state.node)
    if target != END and program.graph.nodes[target].kind == "observe":
        target = program.graph.after(target)
    if target == END and wrong:
        # What tells the model to try again is no answer to the user.
        return ask(program, state, state.asking, at, instruct=False)
    return go(program, state, target, at, text=results[-1].content)


def _with_slot(state: State, index: int, slot: Slot) -> State:
    return evolve(state, slots=(*state.slots[:index], slot, *state.slots[index + 1 :]))
