"""Random graphs of forks, spawns and joins do what a sequential oracle says, also when they are cut short."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import anyio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import agentkv as akv
from agentkv.chain import Message
from agentkv.graph import compile
from agentkv.graph.path import Path, place
from agentkv.kv import PolicySettings
from agentkv.runtime import from_journal
from agentkv.runtime.events import Event
from agentkv.runtime.program import Program
from agentkv.runtime.reducer import reduce
from agentkv.runtime.run import Run
from agentkv.runtime.state import State
from agentkv.store import MemoryStore

from .branch_worlds import AGENTS, CHAT, Model, Oracle, definitions, graphs
from .conftest import check_idle, check_journal, managed_sim
from .test_cancel import check_conversation

MODES = st.sampled_from(["bidirectional", "prefix"])
MANAGED = st.sampled_from([None, PolicySettings()])
# What fails is shown as it was found: making it smaller takes minutes.
QUICK = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SLOW = settings(QUICK, max_examples=20)


class Course:
    """How the branches of a run ended, from its journal alone."""

    def __init__(self, program: Program, events: Iterable[Event]) -> None:
        self.orders: dict[str, tuple[str, ...]] = {}
        state = State()
        for event in events:
            state, _ = reduce(program, state, event)
            self._look(state, ())
        self.state = state
        self.statuses = {place(end.branch): end.status for end in state.past}
        self.errors = {place(end.branch): end.why for end in state.past if end.status == "failed"}

    def _look(self, state: State, at: Path) -> None:
        if state.branching is None:
            return
        fork = place(at, state.branching.node)
        if len(state.branching.ended) > len(self.orders.get(fork, ())):
            self.orders[fork] = state.branching.ended
        for branch in state.branching.every:
            self._look(branch.state, (*at, branch.id))


async def course_of(run: Run[Any], store: MemoryStore) -> Course:
    return Course(run._program, [from_journal(entry) for entry in await store.load(run.id)])


def check_once(course: Course, events: list[dict[str, Any]]) -> None:
    """No branch is lost or runs twice: each has one end, and each of its generations is made once."""
    ends = Counter(place(end.branch) for end in course.state.past)
    assert set(ends.values()) <= {1}
    made = [event for event in events if event["type"] == "generation_finished"]
    asked = Counter((str(event["branch"]), event["node"], event["visit"]) for event in made)
    assert set(asked.values()) <= {1}


def check_chains(state: State) -> None:
    """The main chain's tokens are those of one rendering of the conversation."""
    for name, chain in state.chains.items():
        ids = chain.chain.ids()
        agent = next(agent for agent in AGENTS if agent.name == name)
        rendered = CHAT.render(agent.instructions, definitions(agent), state.messages[: chain.seen], False)
        assert rendered[: len(ids)] == ids


@SLOW
@given(graph=graphs(), seed=st.integers(0, 999), mode=MODES, managed=MANAGED)
def test_branches_do_what_a_sequential_run_does(
    graph: akv.Graph[None, str], seed: int, mode: akv.TransferMode, managed: PolicySettings | None
) -> None:
    model = Model(seed)

    async def main() -> None:
        store = MemoryStore()
        engine = managed_sim(akv.testing.Script(model), managed, {})
        async with akv.Runtime(engine, store=store, kv=akv.KVConfig(kv_transfer_mode=mode)) as rt:
            async with rt.start(graph, "Go", limits=akv.Limits(steps=500)) as run:
                with suppress(akv.ToolError, akv.errors.JoinError):
                    await run.result()
            await check_idle(rt)
            await check_journal(store, run)
            course = await course_of(run, store)
            check_once(course, await store.load(run.id))
            check_conversation(run.state.messages)
            assert run.state.end is not None
            if run.state.end.type == "run_finished":
                oracle = Oracle(model, course.statuses, course.errors, course.orders)
                messages, text = oracle.run(compile(graph), [Message(role="user", content="Go")])
                assert list(run.state.messages) == messages
                assert run.state.end.text == text
                check_chains(run.state)
            else:
                assert run.state.end.type == "run_failed"
                assert course.errors or "JoinError" in run.state.end.kind

    asyncio.run(main())


@SLOW
@given(
    graph=graphs(),
    seed=st.integers(0, 999),
    mode=MODES,
    managed=MANAGED,
    at=st.integers(0, 120),
    limits=st.sampled_from([akv.Limits(), akv.Limits(seconds=6.0), akv.Limits(tokens=300), akv.Limits(steps=6)]),
)
def test_branches_that_are_cut_short_leave_nothing(
    graph: akv.Graph[None, str], seed: int, mode: akv.TransferMode, managed: PolicySettings | None, at: int, limits: Any
) -> None:
    async def main() -> None:
        store = MemoryStore()
        engine = managed_sim(akv.testing.Script(Model(seed)), managed, {})
        async with akv.Runtime(engine, store=store, kv=akv.KVConfig(kv_transfer_mode=mode)) as rt:
            before = asyncio.all_tasks()
            async with rt.start(graph, "Go", limits=limits) as run:
                seen = 0
                async for _ in run:
                    seen += 1
                    if seen > at:
                        run.cancel()
                with suppress(akv.RunCancelled, akv.ToolError, akv.LimitExceeded, akv.errors.JoinError):
                    await run.result()
            assert asyncio.all_tasks() == before
            await check_idle(rt)
            await check_journal(store, run)
            check_once(await course_of(run, store), await store.load(run.id))
            check_conversation(run.state.messages)
            assert run.state.end is not None
            assert run.state.branching is None

    asyncio.run(main())


@settings(QUICK, max_examples=4)
@given(several=st.lists(graphs(), min_size=4, max_size=6), seed=st.integers(0, 999))
def test_runs_with_branches_share_a_small_pool_and_all_end(several: list[akv.Graph[None, str]], seed: int) -> None:
    async def main() -> None:
        ends: list[str] = []
        engine = managed_sim(
            akv.testing.Script(Model(seed)), PolicySettings(), {"pool_blocks": 160, "max_model_len": 4096}
        )
        async with akv.Runtime(engine) as rt:

            async def one(graph: akv.Graph[None, str]) -> None:
                async with rt.start(graph, "Go", limits=akv.Limits(steps=500)) as run:
                    with suppress(akv.ToolError, akv.errors.JoinError):
                        await run.result()
                assert run.state.end is not None
                ends.append(run.state.end.type)

            async with anyio.create_task_group() as tasks:
                for graph in several:
                    tasks.start_soon(one, graph)
            await check_idle(rt)
        assert len(ends) == len(several)

    asyncio.run(main())
