"""Keeping KV ahead of a run while its tools run, on the simulated engine."""

import anyio
import pytest

import agentkv as akv
from agentkv.runtime import RunEvent
from agentkv.testing import call, calls, say

from .conftest import Open

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 40


@akv.tool
async def quick() -> str:
    """Comes at once, and is long."""
    return LONG


@akv.tool
async def slow(ctx: akv.Context[None], seconds: float = 8) -> str:
    """Comes late."""
    await ctx.sleep(seconds)
    return "slow"


agent = akv.Agent("reader", instructions="Read both." * 30, tools=[quick, slow])
SCRIPT = [calls(call("quick"), call("slow")), say("Done.")]


def config(mode: akv.config.TransferMode, step: int = 256) -> akv.KVConfig:
    return akv.KVConfig(kv_transfer_mode=mode, prefetch_step=step)


async def test_the_ready_prefix_of_parallel_results_is_prefilled(runtime: Open) -> None:
    async with runtime(SCRIPT * 2) as rt:
        ahead = await rt.run(agent, "Go", kv=config("bidirectional"), cache_salt="a")
        without = await rt.run(agent, "Go", kv=config("prefix"), cache_salt="b")
    resume, plain = ahead.kv.steps[-1], without.kv.steps[-1]
    assert resume.prefilled >= 200
    assert resume.cached == resume.predicted
    assert plain.cached == plain.predicted
    assert resume.computed < plain.computed / 3
    assert ahead.kv.ttft_after_tool[0] < without.kv.ttft_after_tool[0] / 2
    assert ahead.kv.totals.wasted == 0
    assert ahead.output == without.output
    assert ahead.kv.overlap == 1.0


async def test_results_behind_a_missing_one_are_not_prefilled(runtime: Open) -> None:
    async with runtime([calls(call("slow"), call("quick")), say("Done.")]) as rt:
        result = await rt.run(agent, "Go", kv=config("bidirectional"))
    resume = result.kv.steps[-1]
    assert resume.new >= 200
    assert resume.cached == resume.predicted


async def test_steps_are_small(runtime: Open) -> None:
    async with runtime(SCRIPT) as rt, rt.start(agent, "Go", kv=config("bidirectional", step=64)) as run:
        steps = [event async for event in run if event.type == "prefetched"]
    assert len(steps) > 3
    assert all(event.end - event.start <= 64 and event.end % 32 == 0 for event in steps)


async def test_a_resume_adopts_what_is_in_flight(runtime: Open) -> None:
    script = [calls(call("quick"), call("slow", seconds=0.3)), say("Done.")]
    async with runtime(script) as rt, rt.start(agent, "Go", kv=config("bidirectional", step=64)) as run:
        events: list[RunEvent] = [event async for event in run]
        result = await run.result()
    asked = [event for event in events if event.type == "generation_asked"][-1]
    resume = result.kv.steps[-1]
    assert asked.adopted
    assert resume.cached >= resume.predicted
    done = max(event.end for event in events if event.type == "prefetched")
    assert resume.cached >= done
    assert result.kv.totals.aborted <= 64


@pytest.mark.parametrize("mode", ["off", "prefix"])
async def test_modes_that_do_not_prefill(runtime: Open, mode: akv.config.TransferMode) -> None:
    async with runtime(SCRIPT) as rt, rt.start(agent, "Go", kv=config(mode)) as run:
        assert not [event async for event in run if event.type == "prefetched"]
        result = await run.result()
    assert result.kv.totals.prefetched == 0
    assert mode in result.kv.saving()
    assert (result.kv.steps[-1].cached == 0) == (mode == "off")


async def test_auto_leaves_short_prompts_to_the_prefix_cache(runtime: Open) -> None:
    brief = akv.Agent("brief", instructions="x", max_tokens=16)
    async with runtime([say("ok"), *SCRIPT]) as rt:
        assert (await rt.run(brief, "Go", kv=config("auto"))).kv.totals.prefetched == 0
    async with runtime(SCRIPT) as rt:
        assert (await rt.run(agent, "Go", kv=config("auto"))).kv.totals.prefetched > 0


async def test_the_report_names_the_floor_of_auto_where_that_left_out_what_was_known(runtime: Open) -> None:
    graph = akv.Graph("choice")
    writer, critic = (akv.Agent(name, instructions="x", max_tokens=64) for name in ("writer", "critic"))
    plan = graph.plan("plan", writer)
    ways = graph.fork("ways", {"a": "Be brief.", "b": "Be long."})
    best = graph.join("best", ways, akv.winner(judge=critic))
    graph.path(akv.START, plan, ways)
    graph.path(best, akv.END)
    script = akv.testing.Script(
        {
            "": [say("Two.")],
            "ways.a": [say("one two three four " * 3)],
            "ways.b": [say("one two three four " * 9)],
            "best.judge": [akv.testing.label("a", "It is brief.")],
        }
    )
    async with runtime(script) as rt:
        auto = (await rt.run(graph, "Go", kv=config("auto"), cache_salt="a")).kv
        every = (await rt.run(graph, "Go", kv=config("bidirectional"), cache_salt="b")).kv
    (judge,) = (step for step in auto.steps if step.branch == "best.judge")
    assert judge.cold > 0
    assert every.totals.prefetched_used > 0
    why = "kv_transfer_mode 'auto' leaves out prompts of which less than 128 tokens are known"
    assert auto.saving() == f"Nothing was prefilled ahead: {why}."
    assert auto.to_json()["left_out"] == "short"


async def test_the_report_says_that_the_limit_lets_nothing_be_prefilled(runtime: Open) -> None:
    async with runtime(SCRIPT) as rt:
        result = await rt.run(agent, "Go", kv=akv.KVConfig(kv_transfer_mode="bidirectional", branch_prefetch_limit=0))
    assert result.kv.steps[-1].cold > 0
    assert result.kv.saving() == "Nothing was prefilled ahead: branch_prefetch_limit is 0."


async def test_the_anchor_of_an_agent_that_comes_next_is_prefilled(runtime: Open) -> None:
    critic = akv.Agent("critic", instructions="Judge. " * 100)
    graph = akv.Graph("pair")
    plan, act, judge = graph.plan("plan", agent), graph.tool("act"), graph.replan("judge", critic)
    graph.path(akv.START, plan, act, judge, akv.END)
    async with runtime([call("slow"), say("Fine.")]) as rt:
        result = await rt.run(graph, "Go", kv=config("bidirectional"))
    assert result.kv.steps[-1].prefilled >= 96
    assert result.kv.steps[-1].cached == result.kv.steps[-1].predicted


async def test_an_anchor_is_shared_by_runs_under_one_salt_only(runtime: Open) -> None:
    async with runtime([say("ok")] * 3) as rt:
        first = await rt.run(agent, "One", cache_salt="a")
        second = await rt.run(agent, "Two", cache_salt="a")
        other = await rt.run(agent, "Two", cache_salt="b")
    assert first.kv.steps[0].cached == 0
    assert second.kv.steps[0].cached == second.kv.steps[0].predicted > 0
    assert other.kv.steps[0].cached == other.kv.steps[0].predicted == 0
    assert other.kv.steps[0].salted > 0


async def test_what_the_pool_evicted_is_booked_as_evicted(runtime: Open) -> None:
    big = akv.Agent("big", instructions="Something else. " * 60)
    async with runtime(lambda request: [0, 1], engine={"pool_blocks": 40, "max_model_len": 1200, "kv": None}) as rt:
        await rt.run(big, "One", kv=config("prefix"))
        for topic in range(3):
            filler = akv.Agent("filler", instructions=f"Topic {topic}. " * 90)
            await rt.run(filler, "x", kv=config("prefix"))
        again = await rt.run(big, "One", kv=config("prefix"))
    step = again.kv.steps[0]
    assert step.predicted > step.cached
    assert step.evicted > 0


async def test_concurrent_runs_prefill_without_mixing(runtime: Open) -> None:
    async with runtime(SCRIPT) as rt:
        results: dict[int, akv.Result[str]] = {}

        async def one(n: int) -> None:
            results[n] = await rt.run(agent, f"Go {n}", kv=config("bidirectional"))

        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(one, n)
    assert {result.output for result in results.values()} == {"Done."}
    for result in results.values():
        for step in result.kv.steps:
            assert step.cached >= step.predicted or step.evicted
