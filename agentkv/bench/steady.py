"""Measuring at a steady load: agents that end are replaced, and only the middle counts."""

import math
from collections.abc import Iterator, Sequence

from attrs import evolve, field, frozen

from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import AgentPlan, Arrival, BranchPlan, Output, Wait, Workload
from agentkv.chain import Segment
from agentkv.errors import SetupError

__all__ = ("Renewed", "Steady", "endless")

SETTLE_SHARE = 0.25
# Enough ids that no two rounds have a block in common, few enough that the text stays what it was.
MARK_TOKENS = 8


@frozen(kw_only=True)
class Steady:
    """``agents`` are kept under way for ``duration`` seconds of the engine's clock.

    The first ``settle`` seconds (None: a quarter of them) do not count; all agents must have arrived within them.
    A turn counts if it could be asked for in the rest of the time, the window. The load is kept up behind the
    window until every such turn has its first token, for as long as the window lasted at most; what still waits
    then counts with the time it has waited, and its number is told (``censored``). A task counts if it ends in
    the window. Tokens, evictions and preemptions are the differences of the counters at the window's two ends.
    Raises ``SetupError`` for numbers that leave no window.
    """

    agents: int
    duration: float
    settle: float = field()

    @settle.default
    def _quarter(self) -> float:
        return SETTLE_SHARE * self.duration

    def __attrs_post_init__(self) -> None:
        if self.agents < 1:
            raise SetupError(f"frontier: {self.agents} agents; give numbers of at least 1")
        if not 0 < self.duration < math.inf:
            raise SetupError(f"duration={self.duration:g} must be above 0 seconds")
        if not 0 <= self.settle < self.duration:
            raise SetupError(
                f"settle_seconds={self.settle:g} must be at least 0 and below duration={self.duration:g}: "
                "they do not count"
            )

    @property
    def window(self) -> float:
        """Seconds that count."""
        return self.duration - self.settle

    def check(self, workload: Workload) -> None:
        """Raise ``SetupError`` if agents arrive after the time that does not count."""
        last = max(plan.starts_at for plan in workload.plans)
        if last > self.settle:
            raise SetupError(
                f"settle_seconds={self.settle:g} end before the last agent arrives, {last:g} seconds after the start: "
                f"give a duration of {last / SETTLE_SHARE:g} or more (--duration), or {last:g} seconds to settle "
                "(--settle-seconds), or let agents arrive sooner (--start-spread)"
            )

    def starts(self, workload: Workload) -> list[float]:
        """When each of the first agents arrives: as the workload's own do, however many these are."""
        plans = workload.plans
        return [plans[number * len(plans) // self.agents].starts_at for number in range(self.agents)]


@frozen
class Renewed(AgentPlan):
    """A plan once more, ``round`` times on: the same lengths, times and anchor, and nothing else in the cache.

    The first ids behind the anchor differ from round to round, and with them every block from there on; agents of
    one round share what they shared before. One that another agent starts arrives like any other here.
    """

    plan: AgentPlan
    round: int
    number: int
    starts_at: float = 0.0

    @property
    def group(self) -> str:
        """As the plan's."""
        return self.plan.group

    @property
    def anchor_tokens(self) -> int:
        """As the plan's."""
        return self.plan.anchor_tokens

    @property
    def end_tokens(self) -> int:
        """As the plan's."""
        return self.plan.end_tokens

    @property
    def waits(self) -> Sequence[Wait]:
        """As the plan's."""
        return self.plan.waits

    def held_blocks(self, block: int) -> int:
        """As the plan's."""
        return self.plan.held_blocks(block)

    def output(self, generation: int) -> Output:
        """As the plan's."""
        return self.plan.output(generation)

    def arrivals(self, wait: int) -> Sequence[Arrival]:
        """As the plan's."""
        return self.plan.arrivals(wait)

    def branches(self, wait: int) -> Sequence[BranchPlan]:
        """The plan's, with prompts of this round."""
        return [RenewedBranch(branch, self.round) for branch in self.plan.branches(wait)]

    def prompt(self) -> Sequence[Segment]:
        """The plan's, with a mark of the round in front of what is not its anchor."""
        return _marked(self.plan.prompt(), self.round)


@frozen
class RenewedBranch(BranchPlan):
    """A branch of a plan that is renewed."""

    plan: BranchPlan
    round: int

    @property
    def number(self) -> int:
        """As the plan's."""
        return self.plan.number

    @property
    def apart(self) -> bool:
        """As the plan's."""
        return self.plan.apart

    @property
    def output(self) -> Output:
        """As the plan's."""
        return self.plan.output

    def prompt(self) -> Sequence[Segment]:
        """The plan's, marked as an agent's is."""
        return _marked(self.plan.prompt(), self.round)

    def arrivals(self) -> Sequence[Arrival]:
        """As the plan's."""
        return self.plan.arrivals()


def _marked(prompt: Sequence[Segment], number: int) -> Sequence[Segment]:
    segments = list(prompt)
    at = next((at for at, segment in enumerate(segments) if segment.kind != "anchor"), None)
    if number and at is not None:
        ids = segments[at].ids
        mark = random_ids(f"round/{number}", min(MARK_TOKENS, len(ids)))
        segments[at] = evolve(segments[at], ids=(*mark, *ids[len(mark) :]))
    return segments


def endless(workload: Workload) -> Iterator[AgentPlan]:
    """The workload's agents in their order, again and again, each arriving as soon as it is taken."""
    number = 0
    while True:
        again, at = divmod(number, len(workload.plans))
        yield Renewed(workload.plans[at], again, number)
        number += 1
