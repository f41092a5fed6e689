"""What workloads of drawn numbers have in common: agents with one anchor, whose text is random token ids."""

from abc import ABC, abstractmethod
from functools import cached_property
from random import Random
from typing import Generic, TypeVar

from attrs import frozen

from agentkv.bench.lengths import at_least
from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import AgentPlan

__all__ = ("DrawnShape",)

PlanT = TypeVar("PlanT", bound=AgentPlan)


@frozen(kw_only=True)
class DrawnShape(ABC, Generic[PlanT]):
    """Numbers of a workload of which all is drawn from ``seed``. ``_plan(number)`` is what an agent does.

    ``chains`` agents have first prompts of ``prompt_tokens``, the first ``shared_tokens`` common to all, and start
    evenly over ``start_spread`` seconds. Raises ``SetupError`` for a number below its least.
    """

    chains: int = at_least(1)
    prompt_tokens: int = at_least(2)
    shared_tokens: int = at_least(0)
    start_spread: float = at_least(0)
    seed: int

    @abstractmethod
    def _plan(self, number: int) -> PlanT: ...

    @cached_property
    def plans(self) -> tuple[PlanT, ...]:
        """Every agent, in order of its start."""
        return tuple(self._plan(number) for number in range(self.chains))

    def blocks(self, block: int) -> int:
        """KV blocks of ``block`` tokens that all agents hold at their largest, the shared part counted once."""
        shared = self.shared_blocks(block)
        return shared + sum(plan.held_blocks(block) - shared for plan in self.plans)

    def shared_blocks(self, block: int) -> int:
        """Blocks that all chains have in common."""
        return self.shared_tokens // block

    def anchor_ids(self) -> tuple[int, ...]:
        """What all agents' prompts begin with."""
        return random_ids(f"{self.seed}/anchor", self.shared_tokens)

    def starts_at(self, number: int) -> float:
        """When an agent starts, in seconds."""
        return number * self.start_spread / self.chains

    def draw(self, number: int) -> Random:
        """What an agent's own numbers are drawn from."""
        return Random(f"{self.seed}/{number}")  # noqa: S311 - repeatable, not secret
