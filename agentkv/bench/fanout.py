"""The fanout workload: one trunk, several branches, and a join, for a number of agents at once.

What the model says is given, too, so that prompts are the same in every mode, token for token.
"""

from typing import Any

from attrs import asdict, frozen
from typing_extensions import override

from agentkv.bench.drawn import DrawnShape
from agentkv.bench.lengths import at_least, length_range
from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import AgentPlan, Arrival, BranchPlan, Output, Wait
from agentkv.chain import Segment
from agentkv.errors import SetupError

__all__ = ("SHAPES", "FanoutBranch", "FanoutPlan", "FanoutShape")

NAME = "fanout"
# Numbers of the generations of an agent: the one that the branches begin behind, the one behind their join, theirs.
PLAN, JOIN, FIRST_BRANCH = 0, 1, 2
# In front of each output that is read stands its label, with what the template has around it.
LABEL_TOKENS = 4

#: Named sets of numbers. ``kvcomm``: five agents, the trunk's and four more, each of which reads all who spoke before.
SHAPES: dict[str, dict[str, Any]] = {
    "forks": {
        "chains": 8,
        "prompt_tokens": 2000,
        "shared_tokens": 500,
        "plan_tokens": 64,
        "branches": 4,
        "branch_tokens": 48,
        "output_tokens": (150, 350),
        "join_tokens": 64,
        "apart": False,
        "connected": False,
        "start_spread": 8.0,
    },
    "kvcomm": {
        "chains": 6,
        "prompt_tokens": 1000,
        "shared_tokens": 512,
        "plan_tokens": 512,
        "branches": 4,
        "branch_tokens": 488,
        "output_tokens": (512, 512),
        "join_tokens": 64,
        "apart": True,
        "connected": True,
        "start_spread": 12.0,
    },
}


@frozen(kw_only=True)
class FanoutBranch(BranchPlan):
    """Branch ``index`` of an agent, counted from 0."""

    plan: "FanoutPlan"
    index: int

    @property
    def number(self) -> int:
        """Behind those of the agent's own."""
        return FIRST_BRANCH + self.index

    @property
    def apart(self) -> bool:
        """Whether it begins with a prompt of its own and not with the trunk."""
        return self.plan.shape.apart

    @property
    def output(self) -> Output:
        """Of the length that was drawn for it."""
        return self.plan.said(self.number, self.plan.outputs[self.index])

    @property
    def quoted(self) -> tuple[int, ...]:
        """The generations whose outputs it reads, in order."""
        before = range(FIRST_BRANCH, self.number) if self.plan.shape.connected else ()
        # A prompt on the trunk holds what was said there.
        return (PLAN, *before) if self.apart and self.plan.shape.connected else tuple(before)

    @property
    def new_tokens(self) -> int:
        """Tokens of its prompt that are neither the trunk's nor shared by all."""
        return self.plan.shape.branch_tokens + self.plan.quoted_tokens(self.quoted)

    @property
    def end_tokens(self) -> int:
        """Length of its chain at its end."""
        return self._begin + self.new_tokens + self.plan.outputs[self.index]

    def held_blocks(self, block: int) -> int:
        """Blocks of ``block`` tokens that its chain has for itself."""
        return -(-self.end_tokens // block) - self._begin // block

    def prompt(self) -> list[Segment]:
        """Its instruction; in front of that, of a branch apart, what all have in common."""
        own = Segment(kind="user", label=NAME, ids=self.plan.ids(f"branch/{self.index}", self.plan.shape.branch_tokens))
        return [*(self.plan.anchor() if self.apart else ()), own]

    def arrivals(self) -> list[Arrival]:
        """What those before it say, where they are connected."""
        return [self.plan.quote(number) for number in self.quoted]

    @property
    def _begin(self) -> int:
        shape = self.plan.shape
        return shape.shared_tokens if self.apart else shape.prompt_tokens + shape.plan_tokens


@frozen(kw_only=True)
class FanoutPlan(AgentPlan):
    """One trunk with its branches, which are to say ``outputs`` tokens each."""

    shape: "FanoutShape"
    number: int
    starts_at: float
    outputs: tuple[int, ...]

    @property
    def group(self) -> str:
        """One for all."""
        return NAME

    @property
    def anchor_tokens(self) -> int:
        """Length of the part of the prompt that all agents share."""
        return self.shape.shared_tokens

    @property
    def end_tokens(self) -> int:
        """Length of the agent's own chain at its end."""
        shape = self.shape
        return shape.prompt_tokens + shape.plan_tokens + self.joined_tokens + shape.join_tokens

    @property
    def longest(self) -> int:
        """Length of its longest chain."""
        return max(self.end_tokens, *(branch.end_tokens for branch in self.branches(0)))

    @property
    def joined_tokens(self) -> int:
        """Tokens that the join brings: all outputs, each behind its label."""
        return self.quoted_tokens(tuple(range(FIRST_BRANCH, FIRST_BRANCH + len(self.outputs))))

    @override
    def held_blocks(self, block: int) -> int:
        """The agent's chain at its end, and all branches."""
        return -(-self.end_tokens // block) + sum(branch.held_blocks(block) for branch in self.branches(0))

    @property
    def waits(self) -> tuple[Wait, ...]:
        """One, for all branches."""
        return (Wait(seconds=0.0, name=NAME, source="join"),)

    def prompt(self) -> list[Segment]:
        """The trunk's."""
        own = self.ids("trunk", self.shape.prompt_tokens - self.shape.shared_tokens)
        return [*self.anchor(), Segment(kind="user", label=NAME, ids=own)]

    @override
    def output(self, generation: int) -> Output:
        """What is said on the trunk before the branches begin, and behind their join."""
        return self.said(generation, self.shape.plan_tokens if generation == PLAN else self.shape.join_tokens)

    def arrivals(self, wait: int) -> list[Arrival]:
        """The outputs of the branches, in their order."""
        return [self.quote(branch.number) for branch in self.branches(wait)]

    @override
    def branches(self, wait: int) -> list[FanoutBranch]:
        """All of them."""
        return [FanoutBranch(plan=self, index=index) for index in range(len(self.outputs))]

    def anchor(self) -> list[Segment]:
        """What all agents' prompts begin with; none where that is nothing."""
        ids = self.shape.anchor_ids()
        return [Segment(kind="anchor", label=NAME, ids=ids)] if ids else []

    def said(self, number: int, tokens: int) -> Output:
        """What generation ``number`` of the agent must say."""
        return Output(tokens=tokens, forced=self.ids(f"said/{number}", tokens))

    def quote(self, number: int) -> Arrival:
        """What generation ``number`` says, behind its label."""
        return Arrival(seconds=0.0, ids=self.ids(f"label/{number}", LABEL_TOKENS), quotes=number)

    def quoted_tokens(self, numbers: tuple[int, ...]) -> int:
        """Length of the quotes of the generations ``numbers``."""
        said = (self.shape.plan_tokens if number == PLAN else self.outputs[number - FIRST_BRANCH] for number in numbers)
        return sum(LABEL_TOKENS + tokens for tokens in said)

    def ids(self, what: str, count: int) -> tuple[int, ...]:
        """Ids of this agent alone."""
        return random_ids(f"{self.shape.seed}/{self.number}/{what}", count)


@frozen(kw_only=True)
class FanoutShape(DrawnShape[FanoutPlan]):
    """The workload's numbers, in tokens.

    ``chains`` trunks have prompts of ``prompt_tokens``, the first ``shared_tokens`` common to all, and say
    ``plan_tokens`` before their ``branches`` begin. A branch has ``branch_tokens`` of its own, behind the trunk, or
    ``apart``, behind the shared tokens alone; it says as many as are drawn from ``output_tokens``. All outputs are
    joined in the order of the branches, and ``join_tokens`` are said behind them. ``connected`` branches speak one
    after the other, each when it has read all before it; those apart read the trunk's output, too. Trunks start
    evenly over ``start_spread`` seconds.
    Raises ``SetupError`` for a number below its least, and for a trunk that is shared by all to its end.
    """

    plan_tokens: int = at_least(1)
    branches: int = at_least(1)
    branch_tokens: int = at_least(1)
    output_tokens: tuple[int, int] = length_range()
    join_tokens: int = at_least(1)
    apart: bool
    connected: bool

    kind = "fanout"
    text = "random token ids, forced; so branches and joins have the same prompts in every mode"
    delays = "as long as the branches take"
    forces = True

    def __attrs_post_init__(self) -> None:
        if self.shared_tokens >= self.prompt_tokens:
            raise SetupError(
                f"shared_tokens={self.shared_tokens} must be below prompt_tokens={self.prompt_tokens}: they are the "
                "part of it that is not an agent's own"
            )

    @property
    def longest(self) -> int:
        """Tokens of the longest chain at its end."""
        return max(plan.longest for plan in self.plans)

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values; ``new_tokens``: of all prompts, what no request before them had, by source."""
        branches = [branch for plan in self.plans for branch in plan.branches(0)]
        return {
            **asdict(self, recurse=False),
            "output_tokens": [*self.output_tokens],
            "new_tokens": {
                "start": self.shared_tokens + self.chains * (self.prompt_tokens - self.shared_tokens),
                "branch": sum(branch.new_tokens for branch in branches),
                "join": sum(plan.joined_tokens for plan in self.plans),
            },
        }

    @override
    def _plan(self, number: int) -> FanoutPlan:
        rng = self.draw(number)
        outputs = tuple(rng.randint(*self.output_tokens) for _ in range(self.branches))
        return FanoutPlan(shape=self, number=number, starts_at=self.starts_at(number), outputs=outputs)
