"""The reducer's part about going to a generating node: what it is asked, and when it cannot be."""

from attrs import evolve

from agentkv.chain import Message
from agentkv.runtime.events import RunFailed
from agentkv.runtime.program import Program
from agentkv.runtime.rendering import catch_up, with_chain
from agentkv.runtime.state import Command, End, Generate, State

__all__ = ("Step", "ask", "fail")

Step = tuple[State, tuple[Command, ...]]


def fail(state: State, kind: str, message: str, at: float) -> Step:
    """End the run with an error of class ``kind``."""
    return state, (End(event=RunFailed(kind=kind, message=message, at=at)),)


def ask(program: Program, state: State, name: str, at: float, *, instruct: bool = True) -> Step:
    """Go to the generating node ``name`` and ask for its generation, its own instruction first."""
    node = program.nodes[name]
    if state.steps >= program.limits.steps:
        return fail(state, "LimitExceeded", f"node {name!r}: Limits.steps={program.limits.steps} reached", at)
    if state.tokens >= program.limits.tokens:
        return fail(state, "LimitExceeded", f"node {name!r}: Limits.tokens={program.limits.tokens} reached", at)
    if instruct and node.node.instruction:
        state = evolve(state, messages=(*state.messages, Message(role="user", content=node.node.instruction)))
    agent = node.agent.agent.name
    resume = agent in state.chains
    chain = catch_up(program, node.agent, state)
    room = program.max_model_len - len(chain.chain)
    if room < 1:
        return fail(state, "PromptTooLong", _too_long(program, name, len(chain.chain)), at)
    state = with_chain(evolve(state, phase="generating", node=name, asking=name, steps=state.steps + 1), agent, chain)
    command = Generate(
        node=name,
        visit=state.visits.get(name, 0) + 1,
        agent=agent,
        chain=chain.chain,
        known=state.known.get(agent, len(node.agent.anchor)),
        diverged_at=chain.diverged_at,
        resume=resume,
        held=sum(len(each.chain) for each in state.chains.values()),
        max_tokens=min(node.max_tokens, room, program.limits.tokens - state.tokens),
        constraint=program.format.dialect.constraint(node.shape, state.calls + 1),
        asked_at=at,
    )
    return state, (command,)


def _too_long(program: Program, node: str, tokens: int) -> str:
    return (
        f"node {node!r}: its prompt of {tokens} tokens leaves no room in the model's {program.max_model_len}; "
        "shorten the prompt, give tools a smaller max_tokens, or serve with a larger max_model_len"
    )
