"""The state of one run, and what the reducer asks the shell to do. Everything here is a value."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from attrs import field, frozen

from agentkv.chain import Chain, Message
from agentkv.graph.path import Path
from agentkv.runtime.events import BranchFailed, Event, JoinTimedOut, RunFailed, RunFinished
from agentkv.runtime.siblings import Branching, BranchStatus
from agentkv.runtime.spent import NOTHING, Spent
from agentkv.tools import Outcome, ToolCall

__all__ = (
    "Adopt",
    "BranchEnd",
    "CallTool",
    "ChainState",
    "Choose",
    "Command",
    "End",
    "Follow",
    "Generate",
    "Leave",
    "ListBranches",
    "Phase",
    "Slot",
    "State",
    "Tip",
    "TipSource",
    "Wait",
)

#: Where a tip's last tokens come from: what is certain, a stream so far, who guessed, or a prompt that may come later.
TipSource = Literal["certain", "stream", "memo", "poll", "hook", "next"]
Phase = Literal["new", "generating", "calling", "branching", "ended"]


@frozen(kw_only=True)
class ChainState:
    """One agent's chain: the first ``seen`` messages of the conversation are in it.

    ``closed``: the last turn's end token is in the chain. ``diverged_at``: where the newest rendering left
    the former one (tokens from the start), for a template that rewrites history; None otherwise.
    """

    chain: Chain
    seen: int = 0
    closed: bool = False
    diverged_at: int | None = None


@frozen(kw_only=True)
class Slot:
    """One tool call of the step in progress; exactly one outcome, ever."""

    call: ToolCall
    started: bool = False
    outcome: Outcome | None = None


class BranchEnd(NamedTuple):
    """How a branch ended, and ``why`` if it failed.

    An ``adopted`` one won its join; a ``cancelled`` one still ran when its join went on without it, or its run ended.
    """

    branch: Path
    status: BranchStatus
    why: str = ""


@frozen(kw_only=True)
class State:
    """Everything about a run that its journal determines, or about a branch, which is a run within a run.

    ``spent`` counts towards ``Limits``; of a branch, from its beginning, while ``elsewhere`` is what the rest of the
    run has spent. ``numbered`` is how many calls the conversation has, which their ids go by. ``retries`` counts
    failed calls in a row by tool, ``rejected`` generations in a row that their node could not use. ``known`` is, by
    agent, how many tokens of its next prompt were known when that was last worked out. ``speaker`` is the agent that
    generated last, ``choices`` are the only labels that a judge may choose (empty: all). ``past`` are the branches
    that ended.
    """

    phase: Phase = "new"
    run_id: str = ""
    node: str = ""
    asking: str = ""
    speaker: str = ""
    messages: tuple[Message, ...] = ()
    chains: Mapping[str, ChainState] = field(factory=dict)
    slots: tuple[Slot, ...] = ()
    arrived: tuple[int, ...] = ()
    branching: Branching | None = None
    past: tuple[BranchEnd, ...] = ()
    choices: tuple[str, ...] = ()
    visits: Mapping[str, int] = field(factory=dict)
    known: Mapping[str, int] = field(factory=dict)
    retries: Mapping[str, int] = field(factory=dict)
    rejected: int = 0
    numbered: int = 0
    spent: Spent = NOTHING
    elsewhere: Spent = NOTHING
    end: Event | None = None

    @property
    def all_spent(self) -> Spent:
        """What the run or branch has spent, with what its branches have."""
        return self.spent if self.branching is None else self.spent.plus(self.branching.spent)

    @property
    def held(self) -> int:
        """Tokens of all chains, what branches share with their trunk counted once."""
        own = sum(len(each.chain) for each in self.chains.values())
        return own if self.branching is None else own + self.branching.held


@frozen(kw_only=True)
class Tip:
    """Token ids that ``agent``'s next prompt is certain to start with, or, by a guess of ``source``, likely to."""

    agent: str
    chain: Chain
    source: TipSource = "certain"


@frozen(kw_only=True)
class Generate:
    """Ask the engine for one generation on ``chain``. ``known`` of its tokens were known before the ask.

    ``resume``: the chain goes on from an earlier generation of the run.
    """

    node: str
    visit: int
    agent: str
    chain: Chain
    known: int
    diverged_at: int | None
    resume: bool
    max_tokens: int
    constraint: str | None
    asked_at: float
    branch: Path = ()


@frozen(kw_only=True)
class CallTool:
    """Run one tool call, the ``attempt``-th in a row of its tool, from 1."""

    node: str
    asking: str
    index: int
    call: ToolCall
    attempt: int
    branch: Path = ()


@frozen(kw_only=True)
class Follow:
    """Keep the engine's KV caught up with these tips, first ones first, while the named tools run."""

    tips: tuple[Tip, ...]
    waiting_for: tuple[str, ...] = ()
    branch: Path = ()


@frozen(kw_only=True)
class ListBranches:
    """Have the user's functions list the branches of ``node``, from ``text``: an answer of ``speaker``, if of one."""

    node: str
    text: str
    speaker: str | None
    branch: Path = ()


@frozen(kw_only=True)
class Choose:
    """Have the user's function choose among the outputs of branches, given by label."""

    node: str
    outputs: tuple[tuple[str, str], ...]
    branch: Path = ()


@frozen(kw_only=True)
class Wait:
    """Let ``then`` happen in ``seconds``; its time is filled in then."""

    seconds: float
    then: JoinTimedOut | BranchFailed
    branch: Path = ()


@frozen(kw_only=True)
class Adopt:
    """The branch ``branch`` goes on as the chain that it came from: what it holds in the engine is that chain's."""

    branch: Path


@frozen(kw_only=True)
class Leave:
    """The branch ``branch`` is over: stop what it has under way, and give back what it holds, before anything else."""

    branch: Path


@frozen(kw_only=True)
class End:
    """Nothing more will happen: journal ``event`` as the run's last. In a branch it ends the branch, or with
    ``whole`` the run.
    """

    event: RunFinished | RunFailed
    whole: bool = False


Command: TypeAlias = Generate | CallTool | Follow | ListBranches | Choose | Wait | Adopt | Leave | End
