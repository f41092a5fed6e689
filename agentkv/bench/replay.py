"""The replay workload: recorded conversations, word by word, as many agents at once."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from attrs import field, frozen

from agentkv.bench.story import Between, Story
from agentkv.bench.waiting_times import Origin, WaitingTimes
from agentkv.bench.workload import AgentPlan, Arrival, Output, Wait
from agentkv.chain import Chain, Segment
from agentkv.errors import SetupError
from agentkv.trace import Trajectory, read_trajectories

__all__ = ("Replay", "ReplayPlan", "choose_stories")

USER = "user"


@frozen(kw_only=True)
class ReplayPlan(AgentPlan):
    """One agent: a story, and how long each of its waits is.

    ``seconds`` has for each wait those of its results, in call order, and behind them the user's, if one ends it.
    """

    number: int
    starts_at: float
    story: Story
    seconds: tuple[tuple[float, ...], ...]

    @property
    def group(self) -> str:
        """Equal for agents with the same instructions and tools."""
        return self.story.group

    @property
    def anchor_tokens(self) -> int:
        """Length of instructions and tools."""
        return self.story.anchor

    @property
    def end_tokens(self) -> int:
        """Length of the chain at its longest."""
        return self.story.tokens

    @property
    def waits(self) -> tuple[Wait, ...]:
        """For tools, or for the user, or for both one after the other."""
        return tuple(_wait(step, seconds) for step, seconds in zip(self.story.between, self.seconds, strict=True))

    def prompt(self) -> tuple[Segment, ...]:
        """Instructions, tools, and what the user wrote."""
        return self.story.prompt

    def output(self, generation: int) -> Output:
        """What the recorded assistant said."""
        ids = self.story.outputs[generation]
        return Output(tokens=len(ids), forced=ids)

    def arrivals(self, wait: int) -> list[Arrival]:
        """The template when the calls are made, each result when those before it are there, too, and the rest."""
        step, seconds = self.story.between[wait], self.seconds[wait]
        results = list(accumulate(seconds[: len(step.calls)], max, initial=0.0))
        times = [*results[: len(step.known)], _total(step, seconds)]
        found: list[Arrival] = []
        before = 0.0
        for at, ids in zip(times[:-1], step.known, strict=True):
            if ids:
                found.append(Arrival(seconds=at - before, ids=ids))
                before = at
        return [*found, Arrival(seconds=times[-1] - before, ids=step.last, keep=step.keep)]


def _wait(step: Between, seconds: Sequence[float]) -> Wait:
    source, name = (USER, USER) if step.asked else ("tool", "+".join(step.calls))
    return Wait(seconds=_total(step, seconds), name=name, source="user" if source == USER else "tool")


def _total(step: Between, seconds: Sequence[float]) -> float:
    """Calls run side by side; a user answers when their results are there."""
    tools = max(seconds[: len(step.calls)], default=0.0)
    return tools + (seconds[-1] if step.asked else 0.0)


@frozen(kw_only=True)
class Replay:
    """Agents that replay ``stories``, which may hold one more than once, starting evenly over ``start_spread`` s.

    ``source`` describes where the stories come from, for the result. Raises ``SetupError`` for no stories.
    """

    stories: tuple[Story, ...] = field()
    times: WaitingTimes
    start_spread: float
    seed: int
    source: dict[str, Any]

    kind = "replay"
    text = (
        "recorded, word by word, in the engine's own tokens; the assistant's turns are forced through its decode. "
        "stock sends the same ids as stock+exact, in its favour"
    )
    forces = True

    @stories.validator
    def _check(self, _: object, value: tuple[Story, ...]) -> None:
        if not value:
            raise SetupError("no trajectory is within the bounds asked for; widen --min-tokens and --max-tokens")

    @cached_property
    def plans(self) -> tuple[ReplayPlan, ...]:
        """Every agent, in order of its start."""
        return tuple(self._plan(number, story)[0] for number, story in enumerate(self.stories))

    @property
    def longest(self) -> int:
        """Tokens of the longest chain."""
        return max(story.tokens for story in self.stories)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the longest first prompt."""
        return max(sum(len(segment.ids) for segment in story.prompt) for story in self.stories)

    @property
    def delays(self) -> str:
        """How many waits are recorded, transplanted from other agents, made up."""
        factor = {"transplanted": self.times.scaling.factor}
        counts = (f"{count} {origin}{factor.get(origin, '')}" for origin, count in self.origins.items() if count)
        return ", ".join(counts) + self.times.scaling.bound

    @cached_property
    def origins(self) -> dict[str, int]:
        """How many results and users' messages have waiting times of each origin."""
        counted: Counter[Origin] = Counter()
        for number, story in enumerate(self.stories):
            counted.update(self._plan(number, story)[1])
        return {origin: counted[origin] for origin in ("recorded", "transplanted", "drawn")}

    def blocks(self, block: int) -> int:
        """What all chains hold at their ends; equal blocks once, wherever they are equal."""
        whole: set[bytes] = set()
        for story in dict.fromkeys(self.stories):
            whole.update(_keys(story, block))
        return len(whole) + sum(1 for story in self.stories if story.tokens % block)

    def shared_blocks(self, block: int) -> int:
        """The blocks of instructions and tools, once for each that occur."""
        return sum({story.group: story.anchor // block for story in self.stories}.values())

    def to_json(self) -> dict[str, Any]:
        """What was replayed, and how the agents differ."""
        lengths = sorted(story.tokens for story in self.stories)
        return {
            **self.source,
            "chains": len(self.stories),
            "distinct": len(set(self.stories)),
            "start_spread": self.start_spread,
            "seed": self.seed,
            "tokens": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
            "generations": sum(len(story.outputs) for story in self.stories),
            "anchors": len({story.group for story in self.stories}),
            "delay_origins": self.origins,
            "delay_scale": self.times.scaling.scale,
            "delay_cap": self.times.scaling.cap,
        }

    def _plan(self, number: int, story: Story) -> tuple[ReplayPlan, list[Origin]]:
        rng = Random(f"{self.seed}/{number}")  # noqa: S311 - repeatable, not secret
        drawn = [
            [
                *(self.times.of_tool(latency, rng) for latency in step.latencies),
                *([self.times.of_user(rng)] if step.asked else []),
            ]
            for step in story.between
        ]
        plan = ReplayPlan(
            number=number,
            starts_at=number * self.start_spread / len(self.stories),
            story=story,
            seconds=tuple(tuple(seconds for seconds, _ in each) for each in drawn),
        )
        return plan, [origin for each in drawn for _, origin in each]


@lru_cache(maxsize=1024)
def _keys(story: Story, block: int) -> tuple[bytes, ...]:
    whole = Segment(kind="user", label=USER, ids=tuple(story.final_ids()))
    return tuple(Chain.empty().extend(whole).block_keys(block))


def choose_stories(
    files: Sequence[Path],
    tell: Callable[[Trajectory], Story],
    *,
    chains: int | None,
    tokens: tuple[int, int | None],
    seed: int,
) -> tuple[Story, ...]:
    """Stories of ``chains`` agents (None: of every conversation once) whose chains are within ``tokens``.

    The files take turns, each in an order of its own that ``seed`` decides, so that a few large ones do not crowd
    out the others. When all have been told they are told again, in the same order.
    """
    told: list[Story] = []
    for trajectory in _in_turn(files, seed):
        if chains is not None and len(told) == chains:
            break
        story = tell(trajectory)
        if tokens[0] <= story.tokens and (tokens[1] is None or story.tokens <= tokens[1]):
            told.append(story)
    if chains is None or not told:
        return tuple(told)
    return tuple(told[number % len(told)] for number in range(chains))


def _in_turn(files: Sequence[Path], seed: int) -> Iterator[Trajectory]:
    queues = []
    for file in files:
        queue = list(read_trajectories(file))
        Random(f"{seed}/{file.name}").shuffle(queue)  # noqa: S311 - as above
        queues.append(queue[::-1])
    while queues := [queue for queue in queues if queue]:
        for queue in queues:
            yield queue.pop()
