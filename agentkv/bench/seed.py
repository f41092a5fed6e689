"""The seed workload: many agents with one anchor in common, a long history each, and tools they wait for.

Everything is drawn from ``seed``: the same shape gives the same agents, on every engine and in every mode.
Text is random token ids. They need neither tokenizer nor trained weights and give exact lengths, so that
modes differ in nothing but what is compared.
"""

from itertools import pairwise
from typing import Any

from attrs import asdict, frozen
from typing_extensions import override

from agentkv.bench.delay import Delay
from agentkv.bench.drawn import DrawnShape
from agentkv.bench.lengths import at_least, length_range
from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import AgentPlan, Arrival, Output, Wait
from agentkv.chain import Segment
from agentkv.errors import SetupError

__all__ = ("ChainPlan", "SeedShape", "ToolTurn")

NAME = "bench"


@frozen(kw_only=True)
class ToolTurn:
    """One tool call: it takes ``seconds``, and its result has ``tokens``."""

    seconds: float
    tokens: int


@frozen(kw_only=True)
class ChainPlan(AgentPlan):
    """What one agent does. Ids are drawn when they are asked for: ten thousand agents fit in memory."""

    shape: "SeedShape"
    number: int
    starts_at: float
    tools: tuple[ToolTurn, ...]

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
        """Length of the chain when the agent is done."""
        turns = len(self.tools) + 1
        return self.shape.prompt_tokens + turns * self.shape.output_tokens + sum(t.tokens for t in self.tools)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """A wait for each tool."""
        return tuple(Wait(seconds=tool.seconds, name=NAME) for tool in self.tools)

    def prompt(self) -> list[Segment]:
        """The anchor and the history."""
        turns = [
            Segment(kind="assistant" if number % 2 else "user", label=NAME, ids=ids)
            for number, ids in enumerate(self.history())
        ]
        anchor = self.anchor()
        return [Segment(kind="anchor", label=NAME, ids=anchor), *turns] if anchor else turns

    @override
    def output(self, generation: int) -> Output:
        """Of equal length each time; the model says what it likes."""
        return Output(tokens=self.shape.output_tokens)

    def arrivals(self, wait: int) -> list[Arrival]:
        """The tool's result, in pieces at equal intervals."""
        pieces = self.pieces(wait)
        return [Arrival(seconds=self.tools[wait].seconds / len(pieces), ids=ids) for ids in pieces]

    def anchor(self) -> tuple[int, ...]:
        """The part of the prompt that all agents share."""
        return self.shape.anchor_ids()

    def history(self) -> list[tuple[int, ...]]:
        """The agent's own part of the prompt, in ``history_turns`` turns of nearly equal length."""
        own, turns = self.shape.prompt_tokens - self.shape.shared_tokens, self.shape.history_turns
        ids = random_ids(f"{self.shape.seed}/{self.number}/history", own)
        cuts = [own * turn // turns for turn in range(turns + 1)]
        return [ids[start:end] for start, end in pairwise(cuts)]

    def result(self, call: int) -> tuple[int, ...]:
        """What the tool of call ``call`` returns."""
        return random_ids(f"{self.shape.seed}/{self.number}/result/{call}", self.tools[call].tokens)

    def pieces(self, call: int) -> list[tuple[int, ...]]:
        """The result in the ``result_pieces`` in which it arrives over the tool's time."""
        ids, count = self.result(call), self.shape.result_pieces
        cuts = [len(ids) * piece // count for piece in range(count + 1)]
        return [ids[start:end] for start, end in pairwise(cuts)]


@frozen(kw_only=True)
class SeedShape(DrawnShape[ChainPlan]):
    """The workload's numbers, in tokens and seconds.

    ``prompt_tokens`` of the first prompt include ``shared_tokens`` common to all agents; the rest is
    ``history_turns`` turns. Each of ``tool_calls`` results arrives in ``result_pieces`` equal parts over the
    tool's time (1: all of it at the end). Agents start evenly over ``start_spread`` seconds.
    Raises ``SetupError`` for a number below its least, and for lengths that contradict each other.
    """

    history_turns: int = at_least(1)
    tool_calls: int = at_least(0)
    result_tokens: tuple[int, int] = length_range()
    tool_seconds: Delay
    output_tokens: int = at_least(1)
    result_pieces: int = at_least(1)

    kind = "seed"
    text = "random token ids: nothing is rendered, so stock keeps its prefix as stock+exact does"
    delays = "drawn from tool_seconds"
    forces = False

    def __attrs_post_init__(self) -> None:
        own = self.prompt_tokens - self.shared_tokens
        if own < self.history_turns:
            raise SetupError(
                f"prompt_tokens={self.prompt_tokens} must be at least {self.shared_tokens + self.history_turns}: "
                f"shared_tokens={self.shared_tokens}, and one for each of history_turns={self.history_turns}; raise "
                "the first or lower the others"
            )
        low, high = self.result_tokens
        if low < self.result_pieces:
            raise SetupError(
                f"result_pieces={self.result_pieces} is more than result_tokens={low}:{high} may be; each piece needs "
                f"a token: have at most {low} pieces, or longer results"
            )

    @property
    def longest(self) -> int:
        """Tokens of the longest chain at its end."""
        return max(plan.end_tokens for plan in self.plans)

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {
            **asdict(self, recurse=False),
            "tool_seconds": str(self.tool_seconds),
            "result_tokens": [*self.result_tokens],
        }

    @override
    def _plan(self, number: int) -> ChainPlan:
        rng = self.draw(number)
        tools = tuple(
            ToolTurn(seconds=self.tool_seconds.draw(rng), tokens=rng.randint(*self.result_tokens))
            for _ in range(self.tool_calls)
        )
        return ChainPlan(shape=self, number=number, starts_at=self.starts_at(number), tools=tools)
