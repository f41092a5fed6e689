"""The reducer's part about moving on: to a node, to the end, into branches; and what happens in these.

A branch is a run within the run: it has a ``State`` of its own, which the same functions bring forward. Its commands
get its id in front of their ``branch``; the ``End`` of its state is its own end, and brings the join forward.
"""

from collections.abc import Callable

from attrs import evolve

from agentkv.chain import LABEL_LINE, Message
from agentkv.errors import AgentKVError
from agentkv.graph import END, AllOf, Branches, Join
from agentkv.graph.path import BranchId, Path
from agentkv.runtime import joining
from agentkv.runtime.asking import Step, ask, fail, told
from agentkv.runtime.cancelling import over, parted
from agentkv.runtime.events import (
    BranchChosen,
    BranchFailed,
    Inner,
    JoinTimedOut,
    RunFailed,
    RunFinished,
)
from agentkv.runtime.program import Program
from agentkv.runtime.siblings import Branch, Branching
from agentkv.runtime.state import Adopt, Choose, Command, End, Follow, Leave, ListBranches, State, Wait

__all__ = ("begin", "chosen", "deliver", "go", "inside", "timed_out")

# Each tip behind a join is all outputs rendered anew: the next is made when they have grown by one part in so many,
# or a thousand branches would take a thousand renderings.
MANY = 16
Reduce = Callable[[Program, State, Inner], Step]


def go(program: Program, state: State, target: str, at: float, *, text: str, complete: bool = True) -> Step:
    """Go on to the node ``target``, or end with the answer ``text``."""
    if target == END:
        return state, (End(event=RunFinished(text=text, complete=complete, at=at)),)
    node = program.graph.nodes[target]
    if not isinstance(node, Branches):
        return ask(program, state, target, at)
    visit = state.visits.get(target, 0) + 1
    state = evolve(state, phase="branching", node=target, visits={**state.visits, target: visit})
    if node.over is None:
        return begin(program, state, node.declared, at)
    last = state.messages[-1]
    speaker = state.speaker if last.role == "assistant" else None
    return state, (ListBranches(node=target, text=text, speaker=speaker),)


def begin(program: Program, state: State, listed: tuple[tuple[str, str], ...], at: float) -> Step:
    """Begin the branches of the node that the run is at, given by label and text."""
    node = program.graph.nodes[state.node]
    assert isinstance(node, Branches)
    if not listed:
        return fail(state, "JoinError", f"node {node.name!r} has no branches: its over= listed nothing", at)
    if len(listed) > node.most:
        message = f"node {node.name!r}: more branches were listed than limit={node.most}; list fewer, or raise it"
        return fail(state, "LimitExceeded", message, at)
    visit, apart = state.visits[node.name], node.kind == "spawn"
    behind = joining.trunks(program, state, node)
    state = evolve(state, known={**state.known, **{tip.agent: len(tip.chain) for tip in behind}})
    started = tuple(
        Branch(id=BranchId(node.name, visit, label), state=_apart(state, text) if apart else _on_trunk(state, text))
        for label, text in listed
    )
    trunk = {} if apart else {name: len(each.chain) for name, each in state.chains.items()}
    branching = Branching(node=node.name, visit=visit, branches=started, trunk=trunk)
    state = evolve(state, branching=branching)
    strategy = program.graph.join_of(node.name).strategy
    commands: list[Command] = []
    if isinstance(strategy, AllOf) and strategy.timeout is not None:
        join = program.graph.join_of(node.name).name
        commands.append(Wait(seconds=strategy.timeout, then=JoinTimedOut(node=join, visit=visit, at=at)))
    for branch in started:
        state, more = _enter(program, state, branch, at)
        commands += more
        at_it = state.branching is not None and (state.branching.node, state.branching.visit) == (node.name, visit)
        if not at_it or any(isinstance(command, End) for command in more):
            return state, tuple(commands)
        if node.limits is not None:
            commands.append(_deadline(branch.id, node.limits.seconds, at))
    if behind:
        commands.append(Follow(tips=behind))
    state, more = _act(program, state, at)
    return state, (*commands, *more)


def _on_trunk(state: State, instruction: str) -> State:
    trunk = State(
        run_id=state.run_id,
        messages=state.messages,
        chains=state.chains,
        known=state.known,
        numbered=state.numbered,
        speaker=state.speaker,
    )
    return told(trunk, instruction)


def _apart(state: State, prompt: str) -> State:
    return State(run_id=state.run_id, messages=(Message(role="user", content=prompt),))


def _deadline(branch: BranchId, seconds: float, at: float) -> Wait:
    message = f"Limits.seconds={seconds:g} reached"
    failed = BranchFailed(kind="LimitExceeded", message=message, at=at, branch=(branch,))
    return Wait(seconds=seconds, then=failed)


def _enter(program: Program, state: State, branch: Branch, at: float) -> Step:
    """Ask for the first generation of ``branch``."""
    inner, own = program.branches[branch.id.node], _aware(state, branch)
    try:
        step = go(inner, own, inner.graph.start, at, text=own.messages[-1].content)
    except AgentKVError as error:
        step = fail(own, type(error).__name__, str(error), at)
    return _settled(program, state, branch, step, at)


def deliver(program: Program, state: State, event: Inner, reduce: Reduce) -> Step:
    """Bring the branch forward in which ``event`` happened; what comes after its end changes nothing."""
    head, inner = event.branch[0], evolve(event, branch=event.branch[1:])
    branch = None if state.branching is None else state.branching.get(head)
    if branch is None or branch.status != "running":
        return state, ()
    if isinstance(inner, BranchFailed) and not inner.branch:
        step = fail(branch.state, inner.kind, inner.message, inner.at)
    else:
        step = reduce(program.branches[head.node], _aware(state, branch), inner)
    return _settled(program, state, branch, step, event.at)


def inside(program: Program, state: State, branch: Path) -> tuple[Program, State] | None:
    """The program and the state of ``branch``, from where these two are; None if it does not run."""
    for head in branch:
        found = None if state.branching is None else state.branching.get(head)
        if found is None or found.status != "running":
            return None
        program, state = program.branches[head.node], found.state
    return program, state


def _aware(state: State, branch: Branch) -> State:
    """The branch's state, which knows what the rest of the run has spent."""
    assert state.branching is not None
    elsewhere = state.elsewhere.plus(state.all_spent).minus(branch.state.all_spent)
    return evolve(branch.state, elsewhere=elsewhere)


def _settled(program: Program, state: State, branch: Branch, step: Step, at: float) -> Step:
    """Put what a branch came to into ``state``, and see what its end, if it is that, means to the join."""
    own, commands = step
    end = next((command for command in commands if isinstance(command, End)), None)
    inward = tuple(_inside(branch.id, command) for command in commands if not isinstance(command, End))
    if end is None:
        return _with(state, evolve(branch, state=own)), inward
    if end.whole:
        return _with(state, evolve(branch, state=own)), (end,)
    done = isinstance(end.event, RunFinished)
    text = end.event.text if isinstance(end.event, RunFinished) else end.event.message
    ended = over(program, evolve(branch, state=evolve(own, end=end.event)), "done" if done else "failed", text)
    state, more = _ended(program, _with(state, ended), ended, end.event, at)
    return state, (*inward, *more)


def _inside(branch: BranchId, command: Command) -> Command:
    if isinstance(command, Wait):
        command = evolve(command, then=evolve(command.then, branch=(branch, *command.then.branch)))
    assert not isinstance(command, End)
    return evolve(command, branch=(branch, *command.branch))


def _with(state: State, branch: Branch) -> State:
    assert state.branching is not None
    return evolve(state, branching=state.branching.having(branch))


def _ended(program: Program, state: State, branch: Branch, end: RunFinished | RunFailed, at: float) -> Step:
    assert state.branching is not None
    node, join = joining.join_at(program, state)
    side = branch.id.node == join.name
    if isinstance(end, RunFailed) and (side or joining.on_error(node, join) == "fail"):
        remedy = f"; {branch.id.node!r} may have larger limits=akv.Limits(...)" if _is_bare_limit(end) else ""
        return fail(state, end.kind, f"branch {branch.id.label!r} of {branch.id.node!r}: {end.message}{remedy}", at)
    if side:
        return _told_by_side(program, state, join, branch, at)
    state = evolve(state, branching=evolve(state.branching, ended=(*state.branching.ended, branch.id.label)))
    state, commands = _act(program, state, at)
    # What becomes of a branch that may be adopted is not known yet; of any other only its text is wanted.
    leaving = () if join.adopts and branch.status == "done" else (Leave(branch=(branch.id,)),)
    return state, (*leaving, *commands)


def _is_bare_limit(end: RunFailed) -> bool:
    return end.kind == "LimitExceeded" and end.message.endswith(" reached")


def timed_out(program: Program, state: State, event: JoinTimedOut) -> Step:
    """Note that a join has waited long enough."""
    if state.branching is None or state.branching.visit != event.visit:
        return state, ()
    if joining.join_at(program, state)[1].name != event.node:
        return state, ()
    return _act(program, evolve(state, branching=evolve(state.branching, late=True)), event.at)


def chosen(program: Program, state: State, event: BranchChosen) -> Step:
    """Adopt the branch that the user's function named."""
    if state.branching is None:
        return state, ()
    return _adopt(program, state, event.label, event.at)


def _act(program: Program, state: State, at: float) -> Step:
    """Do what the join's verdict is, if there is one already."""
    assert state.branching is not None
    if state.branching.side is not None:
        return state, ()
    node, join = joining.join_at(program, state)
    verdict = joining.verdict(node, join, state.branching)
    if verdict.kind == "wait":
        return _follow(program, state)
    if verdict.kind == "fail":
        return fail(state, "JoinError", f"join {join.name!r}: {verdict.problem}", at)
    if verdict.kind == "adopt":
        return _adopt(program, state, verdict.labels[0], at)
    taken = set(verdict.labels)
    outputs = tuple(each for each in joining.entries(node, join, state.branching) if each[0] in taken)
    if verdict.kind == "choose":
        return state, (Choose(node=join.name, outputs=outputs),)
    text = joining.joined(outputs)
    if join.name in program.branches:
        return _aside(program, state, join, text, at, choices=verdict.labels if join.adopts else ())
    return _gather(program, state, join, text, at)


def _follow(program: Program, state: State) -> Step:
    assert state.branching is not None
    there, followed = joining.characters(program, state), state.branching.followed
    if there - followed < followed // MANY:
        return state, ()
    state = evolve(state, branching=evolve(state.branching, followed=there))
    follow = joining.ahead(program, state, {})
    if follow is None:
        return state, ()
    known = {tip.agent: len(tip.chain) for tip in follow.tips}
    return evolve(state, known={**state.known, **known}), (follow,)


def _aside(program: Program, state: State, join: Join, text: str, at: float, choices: tuple[str, ...] = ()) -> Step:
    """Ask who is beside the main chain, with the outputs before its eyes: a branch of its own, on the trunk."""
    assert state.branching is not None
    own = evolve(_on_trunk(state, text), choices=choices)
    side = Branch(id=joining.side_id(state.branching, join), state=own)
    return _enter(program, _with(state, side), side, at)


def _told_by_side(program: Program, state: State, join: Join, side: Branch, at: float) -> Step:
    if join.adopts:
        label = side.state.messages[-1].content.partition("\n")[0].removeprefix(LABEL_LINE)
        return _adopt(program, state, label, at)
    state, commands = _gather(program, state, join, side.text, at)
    return state, (Leave(branch=(side.id,)), *commands)


def _gather(program: Program, state: State, join: Join, text: str, at: float) -> Step:
    """Let ``text`` enter the main chain, behind all branches."""
    assert state.branching is not None
    late = tuple(Leave(branch=(each.id,)) for each in state.branching.branches if each.status == "running")
    state = told(parted(program, state), text)
    state, commands = go(program, state, program.graph.after(join.name), at, text=text)
    return state, (*late, *commands)


def _adopt(program: Program, state: State, label: str, at: float) -> Step:
    """Go on as the branch ``label``: its conversation and its chains are the run's from here on."""
    assert state.branching is not None
    winner = state.branching.named(label)
    join = program.graph.join_of(winner.id.node)
    # A judge may have been got ready for, and not been needed.
    judge = (joining.side_id(state.branching, join),) if join.name in program.branches else ()
    losers = (*(branch.id for branch in state.branching.branches if branch is not winner), *judge)
    own, end = winner.state, winner.state.end
    state = evolve(state, branching=state.branching.having(evolve(winner, status="adopted")))
    state = evolve(
        parted(program, state),
        messages=own.messages,
        chains=own.chains,
        known=own.known,
        numbered=own.numbered,
        speaker=own.speaker,
    )
    complete = isinstance(end, RunFinished) and end.complete
    state, commands = go(program, state, program.graph.after(join.name), at, text=winner.text, complete=complete)
    return state, (Adopt(branch=(winner.id,)), *(Leave(branch=(each,)) for each in losers), *commands)
