"""The reducer's part about a generation that ended: what follows from its tokens."""

from attrs import evolve

from agentkv.chain import Message, Segment, Turn
from agentkv.runtime import calls
from agentkv.runtime.asking import Step, ask, fail, shape_of
from agentkv.runtime.branching import go
from agentkv.runtime.events import GenerationFinished
from agentkv.runtime.program import NodeProgram, Program
from agentkv.runtime.rendering import not_run, with_chain
from agentkv.runtime.spent import Spent
from agentkv.runtime.state import ChainState, State

__all__ = ("appended", "finished", "refused")


def finished(program: Program, state: State, event: GenerationFinished) -> Step:
    """Append what was generated, and follow the label, the calls or the answer in it."""
    node = program.nodes[event.node]
    state, turn = appended(program, state, node, event)
    if problem := _unfit(node, turn) or _cut_call(program, node, turn, event.finish):
        return _rejected(program, state, node, problem, event.at)
    state = evolve(state, rejected=0)
    target = program.graph.after_generation(event.node, turn.label, bool(turn.calls))
    if turn.calls:
        return calls.begin(program, state, target, turn.calls, event.at)
    return go(program, state, target, event.at, text=turn.text, complete=event.finish == "stop")


def appended(program: Program, state: State, node: NodeProgram, event: GenerationFinished) -> tuple[State, Turn]:
    """``state`` with what was generated behind it, and how that reads."""
    ids, closed = program.format.close(event.token_ids)
    text = program.format.tokenizer.decode(ids[:-1] if closed else ids)
    turn = program.format.dialect.parse(text, shape_of(node, state), state.numbered + 1)
    agent = node.agent.agent.name
    before = state.chains[agent]
    chain = before.chain.extend(Segment(kind="assistant", label=event.node, ids=tuple(ids)))
    message = Message(role="assistant", content=turn.content, calls=turn.calls)
    spent = state.spent.plus(Spent(tokens=len(event.token_ids)))
    state = evolve(state, messages=(*state.messages, message), spent=spent, speaker=agent)
    state = with_chain(state, agent, ChainState(chain=chain, seen=len(state.messages), closed=closed))
    return evolve(state, known={**state.known, agent: len(chain)}), turn


def refused(state: State) -> str:
    """Why the node could not use the turn before, or its tool the call, as told to the model; empty if they could."""
    last = state.messages[-1]
    if state.rejected or (last.role == "tool" and state.retries.get(last.name)):
        return last.content
    return ""


def _unfit(node: NodeProgram, turn: Turn) -> str:
    """Why the node cannot use this turn, as told to the model; empty if it can."""
    if turn.problem is not None:
        return turn.problem
    return "" if turn.calls or node.shape.answer is None else node.agent.agent.answer_problem(turn.text)


def _cut_call(program: Program, node: NodeProgram, turn: Turn, finish: str) -> str:
    """Why a turn that was cut off is no answer: it ends within what begins a call."""
    text = turn.text.strip()
    if finish == "stop" or turn.calls or not text or not node.shape.tools:
        return ""
    begun = any(mark.startswith(text) for mark in program.format.dialect.call_marks)
    return "The call was cut off; make it shorter." if begun else ""


def _rejected(program: Program, state: State, node: NodeProgram, problem: str, at: float) -> Step:
    name, allowed = node.node.name, node.agent.agent.retries
    if state.rejected >= allowed:
        return fail(
            state,
            "ModelOutputError",
            f"node {name!r}: {problem} ({state.rejected + 1} times in a row, with retries={allowed})",
            at,
        )
    unused = not_run(state.messages[-1])
    told = (*unused, Message(role="user", content=problem))
    numbered = state.numbered + len(unused)
    state = evolve(state, messages=(*state.messages, *told), numbered=numbered, rejected=state.rejected + 1)
    return ask(program, state, name, at, instruct=False)
