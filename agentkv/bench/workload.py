"""The contract of a workload: which agents there are, and what each of them does.

Everything that a plan gives is a function of the workload alone, so that every mode and every repetition has the
same work to do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from attrs import frozen

from agentkv.chain import Segment

__all__ = ("AgentPlan", "Arrival", "BranchPlan", "Output", "Wait", "Workload")


@frozen(kw_only=True)
class Output:
    """What one generation must give: ``tokens`` of them, and exactly the ids of ``forced`` where that is not None."""

    tokens: int
    forced: tuple[int, ...] | None = None


@frozen(kw_only=True)
class Wait:
    """Between two generations: ``seconds`` until the last of what is waited for is there.

    ``name`` is the tool's, and whose durations it is counted among; ``source`` tells tools from people, and both from
    branches, whose ends take as long as they take (``seconds`` is 0).
    """

    seconds: float
    name: str
    source: Literal["tool", "user", "join"] = "tool"


@frozen(kw_only=True)
class Arrival:
    """Ids that go behind the chain, ``seconds`` after the arrival before (the first: after the generation's end).

    The chain is cut to its first ``keep`` tokens before, where that is not None: what was said is told otherwise now.
    Where ``quotes`` is not None, what the generation of that number of the same agent says follows the ids, and all of
    it is there when that one has ended; ``seconds`` is 0.
    """

    seconds: float
    ids: tuple[int, ...]
    keep: int | None = None
    quotes: int | None = None


class BranchPlan(Protocol):
    """One generation beside an agent's chain, which begins when a generation of that has ended.

    ``number`` is its generation's, different from all others of the agent. Its prompt is the chain as it is then
    (``apart``: nothing), behind that ``prompt()``, and behind that ``arrivals()``, all of which quote.
    """

    @property
    def number(self) -> int: ...

    @property
    def apart(self) -> bool: ...

    @property
    def output(self) -> Output: ...

    def prompt(self) -> Sequence[Segment]:
        """Its own tokens; at least one."""
        ...

    def arrivals(self) -> Sequence[Arrival]:
        """What others say before it can be asked for."""
        ...


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

    def held_blocks(self, block: int) -> int:
        """KV blocks of ``block`` tokens that it holds at its largest, those of its branches included."""
        return -(-self.end_tokens // block)

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

    def branches(self, wait: int) -> Sequence[BranchPlan]:
        """The branches that wait ``wait`` is for: they begin with it, and end before the next generation is asked."""
        return ()


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
