"""The reducer's part about joins: when one has what it needs, what comes of it, and how much of that is certain."""

from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import evolve, frozen

from agentkv.graph import AllOf, Branches, First, Join, OnError, Summary, Winner
from agentkv.graph.path import BranchId
from agentkv.runtime.program import Program
from agentkv.runtime.rendering import begun, expected
from agentkv.runtime.siblings import Branch, Branching
from agentkv.runtime.state import Follow, State, Tip

__all__ = ("Verdict", "ahead", "characters", "entries", "join_at", "joined", "on_error", "side_id", "trunks", "verdict")


@frozen
class Verdict:
    """What a join does now: ``"wait"``; or ``"adopt"`` the branch ``labels[0]``; or take the outputs of ``labels`` and
    ``"gather"`` them, have a ``"judge"`` or a function ``"choose"`` among them; or ``"fail"`` with ``problem``.
    """

    kind: Literal["wait", "adopt", "gather", "judge", "choose", "fail"]
    labels: tuple[str, ...] = ()
    problem: str = ""


WAIT = Verdict("wait")


def join_at(program: Program, state: State) -> tuple[Branches, Join]:
    """The fork or spawn that the run is at, and its join."""
    assert state.branching is not None
    node = program.graph.nodes[state.branching.node]
    assert isinstance(node, Branches)
    return node, program.graph.join_of(node.name)


def on_error(node: Branches, join: Join) -> OnError:
    """What a branch's error means here; to a join that takes one branch, ``"collect"`` means ``"drop"``."""
    wanted = (isinstance(join.strategy, AllOf) and join.strategy.on_error) or node.on_error
    return "drop" if wanted == "collect" and join.adopts else wanted


def verdict(node: Branches, join: Join, branching: Branching) -> Verdict:
    """What ``join`` makes of the branches as they are."""
    running = branching.running
    if running and _needs_all(join, branching):
        return WAIT
    ready = tuple(label for label, _ in entries(node, join, branching))
    match join.strategy:
        case First():
            if ready:
                return Verdict("adopt", ready[:1])
            return WAIT if running else Verdict("fail", problem=f"every branch failed{_why(branching)}")
        case Winner(judge=judge):
            if len(ready) < 2:
                problem = f"every branch failed{_why(branching)}"
                return Verdict("adopt", ready) if ready else Verdict("fail", problem=problem)
            return Verdict("choose" if judge is None else "judge", ready)
        case AllOf() as strategy:
            return _enough(strategy, ready, branching)
        case Summary():
            whole = AllOf(at_least=None, timeout=None, on_error=None, order="declared")
            return _enough(whole, ready, evolve(branching, late=False))


def _needs_all(join: Join, branching: Branching) -> bool:
    """Whether nothing can be said before every branch has ended, however they do."""
    match join.strategy:
        case First():
            return False
        case AllOf(at_least=least):
            return least is None and not branching.late
    return True


def _enough(strategy: AllOf, ready: tuple[str, ...], branching: Branching) -> Verdict:
    running, late = branching.running, branching.late
    needed = strategy.at_least or max(1, len(ready) + running)
    if len(ready) + running < needed:
        problem = f"only {len(ready)} of the {needed} outputs that it needs can come{_why(branching)}"
        return Verdict("fail", problem=problem)
    if late and len(ready) < needed:
        return Verdict("fail", problem=f"only {len(ready)} of {needed} outputs came within {strategy.timeout:g} s")
    waits = strategy.timeout is not None and not late
    return Verdict("gather", ready) if not running or (len(ready) >= needed and not waits) else WAIT


def _why(branching: Branching) -> str:
    """What the first of the branches that failed failed of."""
    failed = {branch.id.label: branch.text for branch in branching.branches if branch.status == "failed"}
    first = next((label for label in branching.ended if label in failed), None)
    return "" if first is None else f"; branch {first!r} failed: {failed[first]}"


def entries(node: Branches, join: Join, branching: Branching) -> tuple[tuple[str, str], ...]:
    """What the branches that ended give the join: label and text, in the join's order."""
    order = map(branching.named, branching.ended) if _by_arrival(join) else branching.branches
    errors = on_error(node, join)
    found = ((branch.id.label, _entry(branch, errors)) for branch in order)
    return tuple((label, text) for label, text in found if text is not None)


def _by_arrival(join: Join) -> bool:
    return isinstance(join.strategy, First) or (isinstance(join.strategy, AllOf) and join.strategy.order == "arrival")


def _entry(branch: Branch, errors: OnError) -> str | None:
    if branch.status == "done":
        return branch.text
    return f"failed: {branch.text}" if branch.status == "failed" and errors == "collect" else None


def joined(outputs: tuple[tuple[str, str], ...]) -> str:
    """The text in which outputs enter a chain, each behind its label."""
    return "\n\n".join(f"{label}:\n{text}" for label, text in outputs)


def ahead(program: Program, state: State, decoding: Mapping[str, str]) -> Follow | None:
    """How the prompt behind the join is certain to begin: with the outputs up to the first that is missing.

    ``decoding`` is what running branches have said so far, by label: of the one that is next in the join's order it
    counts as far as it is there. None where nothing is certain.
    """
    node, join = join_at(program, state)
    assert state.branching is not None
    side = program.branches.get(join.name)
    text = _ready(node, join, state.branching, decoding)
    if not text or state.branching.side is not None or (join.adopts and side is None):
        return None
    asked = program if side is None else side
    found = asked.nodes.get(program.graph.after(join.name) if side is None else side.graph.start)
    if found is None:
        return None
    tip = Tip(agent=found.agent.agent.name, chain=begun(program, found.agent, state, text))
    return Follow(tips=(tip,), branch=() if side is None else (side_id(state.branching, join),))


def trunks(program: Program, state: State, node: Branches) -> tuple[Tip, ...]:
    """What those who are asked behind the join of ``node`` read in any case, if the run is to go on as one branch.

    That is the conversation up to the fork, for agents that no branch asks: the others' chains are the branch's.
    """
    join = program.graph.join_of(node.name)
    if not join.adopts:
        return ()
    asked = (agent.name for agent in program.graph.next_agents(join.name))
    apart = (name for name in asked if name not in program.branches[node.name].agents)
    return tuple(Tip(agent=name, chain=expected(program, program.agents[name], state)) for name in apart)


def characters(program: Program, state: State) -> int:
    """How long the outputs are up to the first that is missing."""
    assert state.branching is not None
    return len(_ready(*join_at(program, state), state.branching, {}))


def side_id(branching: Branching, join: Join) -> BranchId:
    """Who is asked beside the main chain, when the branches are done."""
    return BranchId(join.name, branching.visit, "judge" if join.adopts else "summary")


def _ready(node: Branches, join: Join, branching: Branching, decoding: Mapping[str, str]) -> str:
    errors, found = on_error(node, join), []
    for branch in _in_order(join, branching):
        label = branch.id.label
        if branch.status == "running":
            found.append((label, decoding.get(label, "").rstrip()))
            break
        if (text := _entry(branch, errors)) is not None:
            found.append((label, text))
    return joined(tuple(found))


def _in_order(join: Join, branching: Branching) -> Iterator[Branch]:
    if not _by_arrival(join):
        yield from branching.branches
        return
    yield from map(branching.named, branching.ended)
    # Which of several comes next nobody knows.
    if branching.running == 1:
        yield from (branch for branch in branching.branches if branch.status == "running")
