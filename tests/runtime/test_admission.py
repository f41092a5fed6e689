"""A run's place with an engine that admits: what it declares, what is learnt meanwhile, and a place that was lost."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio

import agentkv as akv
from agentkv.engines.sim import SimEngine
from agentkv.errors import EngineError
from agentkv.follow import Load
from agentkv.kv import PolicySettings
from agentkv.runtime.heartbeat import BEAT
from agentkv.testing import Script, call, calls, say

POOL = 200
RUNS = 30


@akv.tool
async def wait(ctx: akv.Context[Any], seconds: float) -> str:
    """Wait."""
    await ctx.sleep(seconds)
    if ctx.deps is not None:
        await ctx.deps()
    return "done"


waiter = akv.Agent("waiter", instructions="Wait, then say so. ", tools=[wait], deps=Any, max_tokens=32)


def engine(seconds: float) -> SimEngine:
    script = Script([call("wait", seconds=seconds), say("ok")])
    return SimEngine(script, kv=PolicySettings(), pool_blocks=POOL, max_model_len=POOL * 32)


async def makespan(**options: Any) -> float:
    """Engine seconds that all runs take together when they start at once."""
    async with akv.Runtime(engine(5.0)) as rt:
        started = rt.engine.clock.now()
        async with anyio.create_task_group() as tasks:
            for number in range(RUNS):
                tasks.start_soon(partial(rt.run, waiter, f"Go {number}", deps=None, **options))
        return rt.engine.clock.now() - started


async def test_what_finished_runs_teach_lets_those_in_that_wait() -> None:
    guessed, known = await makespan(), await makespan(working_set=200)
    # The first few are let in by a guess that is far too large; once they are done all others fit.
    assert known < guessed < 2.5 * known


async def test_a_run_that_lost_its_place_is_declared_anew() -> None:
    async with akv.Runtime(engine(1.0)) as rt:

        async def forget() -> None:
            """As when the client slept longer than its place lasts."""
            [tenure] = rt._services.heartbeat._living
            await rt.engine.kv("leave", {"tickets": [tenure.ticket]})
            await rt.engine.clock.sleep(3 * BEAT)

        result = await rt.run(waiter, "Go", deps=forget)
        assert result.output == "ok"
        assert len(result.kv.refused) == 1
        kinds = [record.kind for record in await rt.kv_records(result.id)]
        assert kinds.count("admission.admit") == 2
        stats = await rt.engine.kv("stats", {})
        assert (stats["runs"], stats["leases"]) == (0, 1), "the anchor's lease alone"


@akv.tool
async def read() -> str:
    """Comes at once, and is long."""
    return "The quick brown fox jumps over the lazy dog. " * 40


async def test_a_run_in_line_does_not_keep_others_from_prefilling_ahead() -> None:
    script = Script([calls(call("read"), call("wait", seconds=5.0)), say("ok")])
    reader = akv.Agent("reader", instructions="Read and wait. ", tools=[read, wait], deps=Any)
    ahead: dict[int, int] = {}
    async with akv.Runtime(SimEngine(script, kv=PolicySettings(), pool_blocks=POOL)) as rt:

        async def one(number: int) -> None:
            kv = akv.KVConfig(kv_transfer_mode="bidirectional")
            result = await rt.run(reader, f"Go {number}", deps=None, working_set=100 * 32, kv=kv)
            ahead[number] = result.kv.totals.prefetched

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(one, number)
        assert sum(record.kind == "admission.queue" for record in await rt.kv_records()) == 1
    assert all(ahead.values()), ahead


async def test_a_run_that_is_paused_when_it_asks_does_not_either() -> None:
    async with akv.Runtime(engine(0.0)) as rt, rt.start(waiter, "Go", deps=None) as run:
        async for event in run:
            if event.type == "generation_asked":
                assert rt._services.pace.load == Load(asked=1)
                [tenure] = rt._services.heartbeat._living
                tenure.placed({"state": "paused", "position": 0, "estimate": None})
                assert rt._services.pace.load == Load()
        assert rt._services.pace.load == Load()


class Refusing(SimEngine):
    """Has no place for branches while the trunk decodes: the first requests for one are those of prefetches."""

    refused = 0

    async def kv(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "admit" and "parent" in payload and self.refused < 2:
            self.refused += 1
            if self.refused == 1:
                raise EngineError("no")
            return {"refused": "the line is full"}
        return await super().kv(operation, payload)


async def test_a_place_that_a_prefetch_does_not_get_ends_no_run() -> None:
    clerk = akv.Agent("clerk", instructions="You help. " * 40)
    graph = akv.Graph("ways")
    first = graph.plan("first", clerk, tool_choice="none")
    notes = graph.spawn("notes", clerk, over=["Read the first. " * 20, "Read the second. " * 20], prompt=str)
    join, last = graph.join("both", notes, akv.all_of()), graph.replan("last", clerk, tool_choice="none")
    graph.path(akv.START, first, notes)
    graph.path(join, last, akv.END)
    engine = Refusing(Script(lambda prompt, tag: say("So. " * 60)), kv=PolicySettings())
    async with akv.Runtime(engine, kv=akv.KVConfig(kv_transfer_mode="bidirectional")) as rt:
        result = await rt.run(graph, "Go")
    assert (engine.refused, result.kv.outcome, result.kv.left_out) == (2, "run_finished", "refused")
