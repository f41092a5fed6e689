"""The agent of the benchmark: asks, waits for its tool or its branches, and asks again.

Where the engine admits, an agent declares what it will hold at its end, exactly; its anchor is not leased on its
own, since as long as any agent lives the anchor is part of that one's chain.
"""

from functools import partial, reduce

import anyio

from agentkv.bench.branches import Outputs, Reader, Trunk, lane_of, run_branch
from agentkv.bench.lane import Lanes, Moment, extend
from agentkv.bench.stage import Stage
from agentkv.bench.turn import Task
from agentkv.bench.workload import AgentPlan, Wait
from agentkv.chain import Chain

__all__ = ("BenchAgent",)


class BenchAgent:
    """One agent of a repetition."""

    def __init__(self, stage: Stage, plan: AgentPlan) -> None:
        self._stage, self._plan = stage, plan
        self._clock = stage.engine.clock
        self._block = stage.engine.info.block_size
        branching = any(wait.source == "join" for wait in plan.waits)
        self._lane = Lanes(stage, plan.number, branching=branching).main()

    async def run(self) -> None:
        """Arrive when the plan says, wait for a slot, work to the end."""
        if self._plan.spawned_by is not None:
            await self._stage.spoken(*self._plan.spawned_by).wait()
        await self._clock.sleep(self._plan.starts_at)
        arrived = self._stage.ready(self._plan.number, 0, "start")
        async with self._stage.slot(), self._lane.open():
            await self._admit()
            await self._work(arrived)
        self._stage.done(Task(self._plan.number, arrived, self._clock.now()))

    async def _admit(self) -> None:
        anchor, shared = f"{self._stage.salt}/{self._plan.group}", self._plan.anchor_tokens // self._block
        first = sum(len(segment.ids) for segment in self._plan.prompt()) + self._plan.output(0).tokens
        held = -(-first // self._block)
        await self._lane.tenure.admit(self._plan.held_blocks(self._block), anchor, shared, held=held)

    async def _work(self, arrived: float) -> None:
        held = self._clock.now() - arrived
        chain = reduce(Chain.extend, self._plan.prompt(), Chain.empty())
        moment = Moment(ready_at=arrived, held=held, known=self._plan.anchor_tokens, resume=False)
        waits = self._plan.waits
        for number, wait in enumerate(waits):
            if wait.source == "join":
                chain, moment = await self._branch_out(chain, number, moment)
            else:
                chain = await self._generate(chain, number, moment)
                chain, moment = await self._wait(chain, number, wait)
        await self._generate(chain, len(waits), moment)

    async def _generate(self, chain: Chain, number: int, moment: Moment) -> Chain:
        chain = await self._lane.generate(chain, number, moment, self._plan.output(number))
        self._stage.spoken(self._plan.number, number).set()
        return chain

    async def _wait(self, chain: Chain, number: int, wait: Wait) -> tuple[Chain, Moment]:
        """The chain with what came in it, and how much of that was known before the last part."""
        known, diverged_at = len(chain), None
        await self._lane.tenure.waiting(self._stage.tool_times.expected((wait.name,)))
        for arrival in self._plan.arrivals(number):
            # What is certain at once is followed together with what it is certain beside.
            if arrival.seconds > 0:
                self._lane.follow(chain)
            await self._clock.sleep(arrival.seconds)
            if arrival.keep is not None:
                chain, diverged_at = _cut(chain, arrival.keep), arrival.keep
            known, chain = len(chain), extend(chain, "tool_result" if wait.source == "tool" else "user", arrival.ids)
        self._stage.tool_times.add(wait.name, wait.seconds)
        ready_at = self._stage.ready(self._plan.number, number + 1, wait.source)
        return chain, Moment(ready_at=ready_at, known=known, diverged_at=diverged_at, source=wait.source)

    async def _branch_out(self, chain: Chain, number: int, moment: Moment) -> tuple[Chain, Moment]:
        """Generation ``number``, and the branches that begin with its end; the chain with what these said.

        As soon as the generation is asked for, what is certain of prompts apart can be prefilled.
        """
        stage, plan, outputs = self._stage, self._plan, Outputs()
        trunk = Trunk(outputs, number)
        async with anyio.create_task_group() as beside:
            for branch in plan.branches(number):
                lane = lane_of(self._lane, branch)
                beside.start_soon(run_branch, stage, plan.number, lane, branch, outputs, trunk)
            said = partial(outputs.say, number)
            chain = await self._lane.generate(chain, number, moment, plan.output(number), said)
            stage.spoken(plan.number, number).set()
            trunk.end(chain)
            chain = await Reader(chain, plan.arrivals(number), outputs, self._lane, self._block).read()
            ready_at = stage.ready(plan.number, number + 1, "join")
        # Of what is quoted all but the last token was known before.
        return chain, Moment(ready_at=ready_at, known=len(chain) - 1, source="join")


def _cut(chain: Chain, keep: int) -> Chain:
    """The first ``keep`` tokens of a chain, as one that goes on otherwise from there."""
    return extend(Chain.empty(), "template", tuple(chain.ids()[:keep]))
