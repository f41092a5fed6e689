"""What a run is likely to ask for behind its next generation: tips of it, and what is learnt from where runs go."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

import anyio

from agentkv.errors import StoreError
from agentkv.follow import (
    NextStep,
    Way,
    chances,
    missing_tokens,
    most_valuable,
    prefills_ahead,
    reached,
    room_price,
)
from agentkv.graph import END
from agentkv.graph.path import Path
from agentkv.report import Ledger
from agentkv.runtime.branching import inside
from agentkv.runtime.program import AgentProgram, Program
from agentkv.runtime.rendering import expected
from agentkv.runtime.services import Order, Services
from agentkv.runtime.state import State, Tip
from agentkv.runtime.tenure import owner_of

__all__ = ("NextSteps",)

SAVE_SECONDS = 5.0


class NextSteps:
    """Owns the way that one run goes over the nodes of its graph that ask, and what is expected behind them.

    Only what the main chain goes through is counted; within branches the declared chances hold.
    """

    def __init__(self, services: Services, program: Program, order: Order, ledger: Ledger) -> None:
        self._services, self._program, self._ledger = services, program, ledger
        self._owner = owner_of(order.salt)
        self._at: tuple[str, int] | None = None
        self._ways = Counter[Way]()
        self._rendered: dict[tuple[Path, str], tuple[int, Tip]] = {}
        self._prefills = prefills_ahead(services.kv.kv_transfer_mode) and services.kv.branch_prefetch_limit > 0

    @property
    def _counted(self) -> bool:
        # With a single agent the next prompt is that agent's, and is followed already.
        return self._prefills and self._program.graph.several

    async def load(self) -> None:
        """Have at hand what the journal counted of the graph's runs; where it cannot be read, warn and do without."""
        graph, transitions = self._program.graph.digest, self._services.transitions
        if not self._counted or transitions.knows(self._owner, graph):
            return
        counts: Mapping[Way, int] = {}
        try:
            async with self._services.engine.clock.busy():
                counts = await self._services.store.counts(self._owner, graph)
        except StoreError as error:
            warnings.warn(f"the history of graph {self._program.graph.name!r}: {error}", RuntimeWarning, stacklevel=2)
        transitions.put(self._owner, graph, counts)

    def asked(self, branch: Path, node: str, visit: int) -> None:
        """A generation is asked for at ``node``; one in a branch says that the run is at its fork or spawn."""
        at = (branch[0].node, branch[0].visit) if branch else (node, visit)
        if at != self._at and self._program.graph.asked_at(at[0]):
            self._went(at[0])
            self._at = at

    def _went(self, node: str) -> None:
        # A generation that could not be used is asked for again: that is no way of the graph's.
        if self._at is not None and node in self._program.graph.onward(self._at[0]):
            self._ways[self._at[0], node] += 1

    async def save(self, *, finished: bool) -> None:
        """The run is over: add its ways to what is known of the graph; a journal that takes none is none the worse."""
        if finished:
            self._went(END)
        if not self._counted or not self._ways:
            return
        graph = self._program.graph.digest
        self._services.transitions.add(self._owner, graph, self._ways)
        # The run's end is shielded: a store that takes its time must not hold it up.
        with suppress(StoreError), anyio.move_on_after(SAVE_SECONDS):
            async with self._services.engine.clock.busy():
                await self._services.store.count(self._owner, graph, self._ways)

    def tips(self, branch: Path, found: tuple[Tip, ...], state: State) -> tuple[Tip, ...]:
        """What is likely to be asked behind the prompts that ``found`` begin, while tools run; ``state`` is the whole
        run's.
        """
        there = inside(self._program, state, branch) if self._prefills else None
        if there is None or there[1].phase != "calling" or not there[0].graph.several:
            return ()
        program, own = there
        tips = {tip.agent: tip for tip in self._candidates(branch, program, own, {tip.agent for tip in found})}
        steps = [self._step(branch, program, own.node, tip) for tip in tips.values()]
        room = room_price(self._services.heartbeat.declared, self._services.engine.info.pool_blocks)
        times, decoding = self._services.pace.times, self._services.pace.load.decoding
        return tuple(tips[step.agent] for step in most_valuable(steps, times, room, decoding))

    def _candidates(self, branch: Path, program: Program, state: State, followed: set[str]) -> Iterator[Tip]:
        for name in program.graph.nodes:
            for agent in program.graph.asked_at(name):
                if agent.name in followed:
                    continue
                if agent.name in program.agents:
                    yield self._tip(branch, program, program.agents[agent.name], state)
                else:
                    yield self._tip(branch, program, program.branches[name].agents[agent.name], None)

    def _tip(self, branch: Path, program: Program, agent: AgentProgram, state: State | None) -> Tip:
        key, length = (branch, agent.agent.name), 0 if state is None else len(state.messages)
        held = self._rendered.get(key)
        if held is None or held[0] != length:
            tip = Tip(agent=agent.agent.name, chain=expected(program, agent, state), source="next")
            held = self._rendered[key] = (length, tip)
        return held[1]

    def _step(self, branch: Path, program: Program, node: str, tip: Tip) -> NextStep:
        graph, block = program.graph, self._services.engine.info.block_size
        # A tool node leads to one generation: what that is asked is certain, and followed.
        first = next(iter(graph.onward(node)))
        goals = {name for name in graph.nodes if any(agent.name == tip.agent for agent in graph.asked_at(name))}
        likely = reached(first, goals, partial(self._onward, branch, program))
        resident = self._ledger.resident(tip.chain.block_keys(block))
        return NextStep(tip.agent, likely, missing_tokens(resident, len(tip.chain), block))

    def _onward(self, branch: Path, program: Program, node: str) -> dict[str, float]:
        if node == END:
            return {}
        seen = {} if branch else self._services.transitions.after(self._owner, program.graph.digest, node)
        return chances(program.graph.onward(node), seen)
