"""The reducer's part about what is cut short: every call gets a result, every branch an end."""

from attrs import evolve

from agentkv.runtime.program import Program
from agentkv.runtime.rendering import not_run, result_messages
from agentkv.runtime.siblings import Branch, BranchStatus
from agentkv.runtime.state import BranchEnd, State
from agentkv.tools import Outcome

__all__ = ("cancelled", "over", "parted")


def cancelled(program: Program, state: State) -> State:
    """Give every call that has no result one that says so, and put all results into the conversation.

    Branches that run are cancelled likewise, and all that there are belong to the past.
    """
    state = parted(program, state)
    if not state.slots:
        unanswered = not_run(state.messages[-1]) if state.messages else ()
        return evolve(state, messages=(*state.messages, *unanswered))
    slots = tuple(slot if slot.outcome else evolve(slot, outcome=Outcome.cancelled()) for slot in state.slots)
    state = evolve(state, slots=slots, arrived=tuple(range(len(slots))))
    results = tuple(message for message in result_messages(program, state) if message is not None)
    return evolve(state, messages=(*state.messages, *results), slots=(), arrived=())


def parted(program: Program, state: State) -> State:
    """``state`` behind its branches: those that ran are cancelled, and what all of them spent is its own now."""
    if state.branching is None:
        return state
    past = list(state.past)
    for branch in state.branching.every:
        ended = over(program, branch, "cancelled") if branch.status == "running" else branch
        past += [end._replace(branch=(branch.id, *end.branch)) for end in ended.state.past]
        past.append(BranchEnd((branch.id,), ended.status, ended.text if ended.status == "failed" else ""))
    return evolve(state, spent=state.all_spent, past=tuple(past), branching=None)


def over(program: Program, branch: Branch, status: BranchStatus, text: str = "") -> Branch:
    """``branch`` at its end, nothing of it left open."""
    state = evolve(cancelled(program.branches[branch.id.node], branch.state), phase="ended")
    return evolve(branch, state=state, status=status, text=text)
