"""The state of one run, and what the reducer asks the shell to do. Everything here is a value."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import field, frozen

from agentkv.chain import Chain, Message
from agentkv.runtime.events import Event
from agentkv.tools import Outcome, ToolCall

__all__ = (
    "CallTool",
    "ChainState",
    "Command",
    "End",
    "Follow",
    "Generate",
    "Phase",
    "Slot",
    "State",
    "Tip",
)

Phase = Literal["new", "generating", "calling", "ended"]


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


@frozen(kw_only=True)
class State:
    """Everything about a run that its journal determines.

    ``steps``, ``calls`` and ``tokens`` count towards ``Limits``; ``retries`` counts failed calls in a row by
    tool, ``rejected`` generations in a row that their node could not use. ``known`` is, by agent, how many
    tokens of its next prompt were known when that was last worked out.
    """

    phase: Phase = "new"
    run_id: str = ""
    node: str = ""
    asking: str = ""
    messages: tuple[Message, ...] = ()
    chains: Mapping[str, ChainState] = field(factory=dict)
    slots: tuple[Slot, ...] = ()
    arrived: tuple[int, ...] = ()
    visits: Mapping[str, int] = field(factory=dict)
    known: Mapping[str, int] = field(factory=dict)
    retries: Mapping[str, int] = field(factory=dict)
    rejected: int = 0
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    end: Event | None = None


@frozen(kw_only=True)
class Tip:
    """Token ids that ``agent``'s next prompt is certain to start with."""

    agent: str
    chain: Chain


@frozen(kw_only=True)
class Generate:
    """Ask the engine for one generation on ``chain``. ``known`` of its tokens were known before the ask.

    ``resume``: the chain goes on from an earlier generation of the run. ``held``: tokens of all the run's chains.
    """

    node: str
    visit: int
    agent: str
    chain: Chain
    known: int
    diverged_at: int | None
    resume: bool
    held: int
    max_tokens: int
    constraint: str | None
    asked_at: float


@frozen(kw_only=True)
class CallTool:
    """Run one tool call, the ``attempt``-th in a row of its tool, from 1."""

    node: str
    asking: str
    index: int
    call: ToolCall
    attempt: int


@frozen(kw_only=True)
class Follow:
    """Keep the engine's KV caught up with these tips, first ones first, while the named tools run."""

    tips: tuple[Tip, ...]
    waiting_for: tuple[str, ...] = ()


@frozen(kw_only=True)
class End:
    """Nothing more will happen: journal ``event`` as the run's last."""

    event: Event


Command: TypeAlias = Generate | CallTool | Follow | End
