"""The contract of a workload: which agents there are, and what each of them does.

Everything that a plan gives is a function of the workload alone, so that every mode and every repetition has the
same work to do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from attrs import frozen

from agentkv.chain import Segment

__all__ = ("AgentPlan", "Arrival", "Output", "Wait", "Workload")


@frozen(kw_only=True)
class Output:
    """What one generation must give: ``tokens`` of them, and exactly the ids of ``forced`` where that is not None."""

    tokens: int
    forced: tuple[int, ...] | None = None


@frozen(kw_only=True)
class Wait:
    """Between two generations: ``seconds`` until the last of what is waited for is there.

    ``name`` is the tool's, and whose durations it is counted among; ``source`` tells tools from people.
    """

    seconds: float
    name: str
    source: Literal["tool", "user"] = "tool"


@frozen(kw_only=True)
class Arrival:
    """Ids that go behind the chain, ``seconds`` after the arrival before (the first: after the generation's end).

    The chain is cut to its first ``keep`` tokens before, where that is not None: what was said is told otherwise now.
    """

    seconds: float
    ids: tuple[int, ...]
    keep: int | None = None


class AgentPlan(Protocol):
    """What one agent does: its first prompt, and then generations with waits between them.

    ``number`` is its place in the workload, ``starts_at`` the seconds from the start to its arrival. The first
    ``anchor_tokens`` of its prompt are those of every agent of the same ``group``. ``end_tokens`` is the
    length of its longest chain, the last generation included.

    An agent that another one starts has ``spawned_by``, that one's number and the generation after which it does;
    ``starts_at`` are then seconds from there.
    """

    @property
    def number(self) -> int: ...

    @property
    def starts_at(self) -> float: ...

    @property
    def spawned_by(self) -> tuple[int, int] | None:
        return None

    @property
    def group(self) -> str: ...

    @property
    def anchor_tokens(self) -> int: ...

    @property
    def end_tokens(self) -> int: ...

    @property
    def waits(self) -> Sequence[Wait]:
        """One between each two generations: there is one generation more than waits."""
        ...

    def prompt(self) -> Sequence[Segment]:
        """The first prompt, at least one token."""
        ...

    def output(self, generation: int) -> Output:
        """What generation ``generation``, counted from 0, must give."""
        ...

    def arrivals(self, wait: int) -> Sequence[Arrival]:
        """What wait ``wait`` brings, in the parts in which it becomes known; at least one."""
        ...


class Workload(Protocol):
    """Agents, in order of their start, and what is known about them before they run.

    ``longest`` is the length in tokens that the longest chain reaches, ``prompt_tokens`` that of the longest first
    prompt. ``text`` and ``delays`` say for every reader of a result what of the work is as it was recorded. ``forces``:
    the engine must be able to generate given ids.
    """

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def delays(self) -> str: ...

    @property
    def forces(self) -> bool: ...

    @property
    def plans(self) -> Sequence[AgentPlan]: ...

    @property
    def longest(self) -> int: ...

    @property
    def prompt_tokens(self) -> int: ...

    def blocks(self, block: int) -> int:
        """KV blocks of ``block`` tokens that all chains hold at their longest, what they share counted once."""
        ...

    def shared_blocks(self, block: int) -> int:
        """Of these, the blocks of the groups' anchors."""
        ...

    def to_json(self) -> Mapping[str, Any]:
        """The numbers that it is made from, as plain values."""
        ...
