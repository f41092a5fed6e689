"""What happens to a run: a closed union of facts.

Every event but ``TextDelta``, ``Prefetched`` and ``Queued`` is journalled, in order, and is all that is needed to
rebuild the run's state. ``at`` is the engine clock's time in seconds. ``branch`` is where it happened: ``()`` on the
main chain, else the branch's path, outermost first.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias, get_args

from attrs import asdict, field, frozen

from agentkv.errors import JournalError
from agentkv.graph.path import Path, to_path
from agentkv.tools import ToolCall

__all__ = (
    "BranchChosen",
    "BranchFailed",
    "BranchesListed",
    "CallFinished",
    "CallStarted",
    "Event",
    "GenerationAsked",
    "GenerationFinished",
    "Inner",
    "JoinTimedOut",
    "Prefetched",
    "Queued",
    "RunCancelledEvent",
    "RunEvent",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "TextDelta",
    "from_journal",
    "to_journal",
)


def _ids(ids: Iterable[int]) -> tuple[int, ...]:
    # A journal gives back a list.
    return tuple(ids)


def _pairs(pairs: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in pairs)


@frozen(kw_only=True)
class RunStarted:
    """The run began. ``graph`` is the graph's name, ``digest`` the hash of its declaration, ``mode`` its
    ``kv_transfer_mode``, ``block_size`` the engine's, in tokens.
    """

    type: ClassVar = "run_started"
    run_id: str
    graph: str
    digest: str
    prompt: str
    at: float
    mode: str = ""
    block_size: int = 0


@frozen(kw_only=True)
class GenerationAsked:
    """A generation is about to be sent: ``prompt`` tokens, of which ``predicted`` should be in the cache.

    ``known`` tokens of the prompt were known before the ask; ``asked_at`` is when it could first be asked.
    ``adopted``: a prefetch of this chain was in flight, so ``predicted`` is a lower bound.
    """

    type: ClassVar = "generation_asked"
    node: str
    visit: int
    agent: str
    prompt: int
    predicted: int
    known: int
    adopted: bool
    asked_at: float
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class GenerationFinished:
    """A generation ended. ``prompt`` and ``cached`` are the engine's own counts, in tokens; ``prefilled`` of those
    cached were prefilled ahead.
    """

    type: ClassVar = "generation_finished"
    node: str
    visit: int
    token_ids: tuple[int, ...] = field(converter=_ids)
    finish: str
    prompt: int
    cached: int
    first_at: float
    at: float
    prefilled: int = 0
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class CallStarted:
    """A tool was started for a call. ``index`` is the call's place among the calls of its generation."""

    type: ClassVar = "call_started"
    node: str
    index: int
    call: ToolCall
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class CallFinished:
    """A call has its result: ``text`` is what the model is told, after any observe node.

    ``status`` is the outcome's, ``note`` stands behind the text, however much of that is cut; ``abandoned`` says that
    the tool is still running.
    """

    type: ClassVar = "call_finished"
    node: str
    index: int
    status: str
    text: str
    abandoned: bool
    at: float
    note: str = ""
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class BranchesListed:
    """A fork or spawn whose branches are made at run time has them: (label, text) each, in order."""

    type: ClassVar = "branches_listed"
    node: str
    branches: tuple[tuple[str, str], ...] = field(converter=_pairs)
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class BranchChosen:
    """The function of a join's ``winner(choose=...)`` named the branch ``label``."""

    type: ClassVar = "branch_chosen"
    node: str
    label: str
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class BranchFailed:
    """A branch ended with an error of its own: ``kind`` is the name of a class in ``agentkv.errors``."""

    type: ClassVar = "branch_failed"
    kind: str
    message: str
    at: float
    branch: Path = field(converter=to_path)


@frozen(kw_only=True)
class JoinTimedOut:
    """The ``visit``-th time that the run came to the join ``node``, it has waited for its ``timeout``."""

    type: ClassVar = "join_timed_out"
    node: str
    visit: int
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class RunFinished:
    """The run ended with an answer, as the model wrote it. ``complete`` is False if it was cut off."""

    type: ClassVar = "run_finished"
    text: str
    complete: bool
    at: float


@frozen(kw_only=True)
class RunFailed:
    """The run ended with an error: ``kind`` is the name of a class in ``agentkv.errors``."""

    type: ClassVar = "run_failed"
    kind: str
    message: str
    at: float


@frozen(kw_only=True)
class RunCancelledEvent:
    """The run was cancelled. Calls without a result got one that says so."""

    type: ClassVar = "run_cancelled"
    at: float


@frozen(kw_only=True)
class TextDelta:
    """Text as it is decoded; not journalled (the ids are, when the generation ends)."""

    type: ClassVar = "text_delta"
    node: str
    text: str
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class Prefetched:
    """One step of a prefetch ended: tokens ``start`` to ``end`` of ``agent``'s chain, ``computed`` of them."""

    type: ClassVar = "prefetched"
    agent: str
    start: int
    end: int
    computed: int
    sent_at: float
    at: float
    branch: Path = field(default=(), converter=to_path)


@frozen(kw_only=True)
class Queued:
    """The run waits to be admitted, ``position`` in line from 1; not journalled.

    ``estimate``: seconds until it is admitted, None if the engine cannot tell.
    """

    type: ClassVar = "queued"
    position: int
    estimate: float | None
    at: float


#: What happens on the main chain or in a branch.
Inner: TypeAlias = (
    GenerationAsked
    | GenerationFinished
    | CallStarted
    | CallFinished
    | BranchesListed
    | BranchChosen
    | BranchFailed
    | JoinTimedOut
)
Event: TypeAlias = RunStarted | Inner | RunFinished | RunFailed | RunCancelledEvent
RunEvent: TypeAlias = Event | TextDelta | Prefetched | Queued

_JOURNALLED: dict[str, type[Any]] = {cls.type: cls for cls in get_args(Event)}


def to_journal(event: Event) -> dict[str, Any]:
    """The event as a JSON-compatible dict whose ``type`` names it."""
    return {"type": event.type, **asdict(event)}


def from_journal(entry: dict[str, Any]) -> Event:
    """The event that ``to_journal`` wrote. Raises ``JournalError`` for anything else."""
    given: object = entry
    if not isinstance(given, dict):
        raise JournalError(f"the journal holds {given!r} where a record should be; {JournalError.remedy}")
    values = dict(entry)
    cls = _JOURNALLED.get(str(values.pop("type", None)))
    if cls is None:
        raise JournalError(f"the journal holds a record of unknown type {entry.get('type')!r}; {JournalError.remedy}")
    try:
        if "call" in values:
            values["call"] = ToolCall(**values["call"])
        event: Event = cls(**values)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise JournalError(
            f"the journal's {cls.type!r} record is not readable: {problem}; {JournalError.remedy}"
        ) from error
    return event
