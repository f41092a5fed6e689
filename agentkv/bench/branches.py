"""Branches of an agent of the benchmark, and whoever reads what they say while they say it."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial, reduce

import anyio

from agentkv.bench.lane import NAME, Lane, Moment, extend
from agentkv.bench.stage import Stage
from agentkv.bench.workload import Arrival, BranchPlan
from agentkv.chain import Chain
from agentkv.graph.path import BranchId
from agentkv.runtime.partial_outputs import BLOCKS

__all__ = ("Outputs", "Reader", "Trunk", "lane_of", "run_branch")


class Outputs:
    """What the generations of one agent have said so far, by their numbers. ``readers`` hear of every token."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self._ids: defaultdict[int, list[int]] = defaultdict(list)
        self._ended: defaultdict[int, anyio.Event] = defaultdict(anyio.Event)

    def say(self, number: int, ids: Sequence[int]) -> None:
        """Generation ``number`` goes on with ``ids``."""
        self._ids[number].extend(ids)
        for reader in self.readers:
            reader.look()

    def end(self, number: int) -> None:
        """Generation ``number`` says nothing more."""
        self._ended[number].set()
        for reader in self.readers:
            reader.look(ended=True)

    def ended(self, number: int) -> anyio.Event:
        """Set when generation ``number`` has ended."""
        return self._ended[number]

    def of(self, number: int) -> Sequence[int]:
        """All that generation ``number`` has said."""
        return self._ids[number]


class Reader:
    """A prompt that grows by what others say: ``arrivals`` behind ``chain``, which ``lane`` prefills ahead."""

    def __init__(self, chain: Chain, arrivals: Sequence[Arrival], outputs: Outputs, lane: Lane, block: int) -> None:
        self._chain, self._arrivals, self._outputs = chain, list(arrivals), outputs
        self._lane, self._least = lane, BLOCKS * block
        self._looked = 0

    async def read(self) -> Chain:
        """The chain with all that arrives, once the last of it has."""
        self._outputs.readers.append(self)
        self.look()
        while self._arrivals:
            await self._outputs.ended(_quoted(self._arrivals[0])).wait()
            self._take()
        self._outputs.readers.remove(self)
        return self._chain

    def look(self, *, ended: bool = False) -> None:
        """Have what is certain now prefilled, if that is more than a little; what is complete is asked for."""
        self._take()
        if not self._arrivals and self._looked:
            return
        ids: Sequence[int] = self._arrivals[0].ids if self._arrivals else ()
        said: Sequence[int] = self._outputs.of(_quoted(self._arrivals[0])) if self._arrivals else ()
        grown = len(self._chain) + len(ids) + len(said)
        if ended or grown - self._looked >= self._least:
            self._looked = grown
            self._lane.follow(extend(self._chain, "user", (*ids, *said)))

    def _take(self) -> None:
        """Put behind the chain what is there in full."""
        while self._arrivals and self._outputs.ended(number := _quoted(self._arrivals[0])).is_set():
            self._chain = extend(self._chain, "user", (*self._arrivals.pop(0).ids, *self._outputs.of(number)))


def _quoted(arrival: Arrival) -> int:
    assert arrival.quotes is not None, "what branches and joins wait for is said by others"
    return arrival.quotes


class Trunk:
    """The chain that branches begin with, once generation ``number`` of the agent has ended."""

    def __init__(self, outputs: Outputs, number: int) -> None:
        self._outputs, self._number = outputs, number
        self._chain = Chain.empty()

    def end(self, chain: Chain) -> None:
        """It has; ``chain`` is with what it said."""
        self._chain = chain
        self._outputs.end(self._number)

    async def ended(self) -> Chain:
        """Wait for that; the chain."""
        await self._outputs.ended(self._number).wait()
        return self._chain


async def run_branch(stage: Stage, agent: int, lane: Lane, plan: BranchPlan, outputs: Outputs, trunk: Trunk) -> None:
    """One branch of ``agent``, from what is known of it before its trunk has ended, to its own end."""
    block = stage.engine.info.block_size
    async with lane.open():
        start = Chain.empty() if plan.apart else await trunk.ended()
        chain, arrivals = reduce(Chain.extend, plan.prompt(), start), plan.arrivals()
        if arrivals or plan.apart:
            chain = await Reader(chain, arrivals, outputs, lane, block).read()
        await trunk.ended()
        ready_at = stage.ready(agent, plan.number, "branch")
        # Of a fork's prompt nothing behind the trunk's last token could be computed before that was there.
        known = len(chain) - 1 if arrivals else len(chain) if plan.apart else len(start) - 1
        await lane.tenure.begin()
        moment = Moment(ready_at=ready_at, known=known, resume=not plan.apart, source="branch")
        await lane.generate(chain, plan.number, moment, plan.output, partial(outputs.say, plan.number))
        outputs.end(plan.number)


def lane_of(lane: Lane, plan: BranchPlan) -> Lane:
    """A lane for the branch ``plan``, under that of its agent."""
    return lane.beside((BranchId(NAME, 1, str(plan.number)),))
