"""The reducer's part about going to a generating node: what it is asked, and when it cannot be."""

from attrs import evolve

from agentkv.chain import Message, TurnShape
from agentkv.runtime.events import RunFailed
from agentkv.runtime.program import NodeProgram, Program
from agentkv.runtime.rendering import catch_up, spawns_ahead, with_chain
from agentkv.runtime.spent import Spent
from agentkv.runtime.state import Command, End, Generate, State

__all__ = ("Step", "ask", "fail", "past_limits", "shape_of", "told")

Step = tuple[State, tuple[Command, ...]]


def fail(state: State, kind: str, message: str, at: float, *, whole: bool = False) -> Step:
    """End the run with an error of class ``kind``; of a branch, the branch alone unless ``whole``."""
    return state, (End(event=RunFailed(kind=kind, message=message, at=at), whole=whole),)


def past_limits(program: Program, state: State, node: str, more: Spent, at: float) -> Step | None:
    """The end of the run, or of the branch, if it may not spend ``more`` at ``node``; None if it may."""
    total = state.elsewhere.plus(state.all_spent)
    for spent, limits, whole in ((total, program.whole, True), (state.spent, program.limits, False)):
        most = {"steps": limits.steps, "tool_calls": limits.tool_calls, "tokens": limits.tokens}
        for (name, limit), before, wanted in zip(most.items(), spent, more, strict=True):
            if wanted and before + wanted > limit:
                return fail(state, "LimitExceeded", _reached(node, name, limit, whole=whole), at, whole=whole)
    return None


def _reached(node: str, name: str, limit: int, *, whole: bool) -> str:
    # What ends a branch alone may be told to the model, which no remedy is for: the run that it ends says it.
    remedy = f"; give the run or its Runtime larger limits=akv.Limits({name}=...)" if whole else ""
    return f"node {node!r}: Limits.{name}={limit} reached{remedy}"


def told(state: State, *texts: str) -> State:
    """``state`` with user messages behind what was said."""
    return evolve(state, messages=(*state.messages, *(Message(role="user", content=text) for text in texts)))


def shape_of(node: NodeProgram, state: State) -> TurnShape:
    """What the node's turn may hold now: of a judge, the labels of those that may still win."""
    if not state.choices:
        return node.shape
    return evolve(node.shape, labels=tuple(each for each in node.shape.labels if each.name in state.choices))


def ask(program: Program, state: State, name: str, at: float, *, instruct: bool = True) -> Step:
    """Go to the generating node ``name`` and ask for its generation, its own instruction first."""
    node = program.nodes[name]
    if (over := past_limits(program, state, name, Spent(steps=1, tokens=1), at)) is not None:
        return over
    if instruct and node.node.instruction:
        state = told(state, node.node.instruction)
    agent = node.agent.agent.name
    resume = agent in state.chains
    chain = catch_up(program, node.agent, state)
    room = program.max_model_len - len(chain.chain)
    if room < 1:
        return fail(state, "PromptTooLong", _too_long(program, name, len(chain.chain)), at)
    state = evolve(state, phase="generating", node=name, asking=name, spent=state.spent.plus(Spent(steps=1)))
    total = state.elsewhere.plus(state.all_spent)
    left = min(program.whole.tokens - total.tokens, program.limits.tokens - state.spent.tokens)
    command = Generate(
        node=name,
        visit=state.visits.get(name, 0) + 1,
        agent=agent,
        chain=chain.chain,
        known=state.known.get(agent, len(node.agent.anchor)),
        diverged_at=chain.diverged_at,
        resume=resume,
        max_tokens=min(node.max_tokens, room, left),
        constraint=program.format.dialect.constraint(shape_of(node, state), state.numbered + 1),
        asked_at=at,
    )
    return with_chain(state, agent, chain), (command, *spawns_ahead(program, state, name))


def _too_long(program: Program, node: str, tokens: int) -> str:
    return (
        f"node {node!r}: its prompt of {tokens} tokens leaves no room in the model's {program.max_model_len}; "
        "shorten the prompt, give tools a smaller max_tokens, or serve with a larger max_model_len"
    )
