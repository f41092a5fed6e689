"""Whole runs on a real vLLM: what the ledger predicted is what the engine says."""

from collections.abc import Iterator
from typing import Any, Literal
from uuid import uuid4

import anyio
import pytest

import agentkv as akv
from agentkv.engines.vllm import VLLMEngine
from agentkv.runtime import from_journal, replay
from agentkv.store import MemoryStore

pytestmark = pytest.mark.vllm("float32")

RULES = "Rule {n}: a parcel of more than {n} kilograms goes by the slow van, and the van leaves at {n} o'clock. "


@akv.tool
async def rules(topic: Literal["parcels", "vans"]) -> str:
    """The rules on a topic; comes at once, and is long."""
    return topic + ": " + "".join(RULES.format(n=n) for n in range(1, 15))


@akv.tool
async def weigh(ctx: akv.Context[float], kind: Literal["gross", "net"]) -> str:
    """Weigh the parcel; comes late."""
    await ctx.sleep(ctx.deps)
    return f"{kind} weight: 7 kilograms"


clerk = akv.Agent(
    "clerk",
    instructions="You are a clerk at a parcel counter. Read the rules and weigh before you answer. " * 6,
    tools=[rules, weigh],
    deps=float,
    max_tokens=64,
)


def office(*calls: Any) -> akv.Graph[float, str]:
    graph = akv.Graph("office", deps=float)
    plan, act = graph.plan("plan", clerk, tool_choice=calls), graph.tool("act")
    answer = graph.replan("answer", clerk, tool_choice="none", max_tokens=8)
    graph.path(akv.START, plan, act, answer, akv.END)
    return graph


def kv(mode: akv.TransferMode, step: int = 64) -> akv.KVConfig:
    return akv.KVConfig(kv_transfer_mode=mode, prefetch_step=step)


@pytest.fixture
def prompts() -> Iterator[str]:
    return (f"Parcel {number}: which van?" for number in range(10))


async def test_a_resume_hits_exactly_what_was_predicted(vllm_engine: VLLMEngine, prompts: Iterator[str]) -> None:
    async with akv.Runtime(vllm_engine) as rt:
        prompt, graph = next(prompts), office(rules, weigh)
        for seconds in (4.0, 15.0, 60.0):
            ahead = await rt.run(graph, prompt, deps=seconds, kv=kv("bidirectional"), cache_salt=uuid4().hex)
            if not ahead.kv.steps[1].adopted:
                break  # the prefetch was over before the slow tool was
        plain = await rt.run(office(rules, weigh), prompt, deps=0.1, kv=kv("prefix"), cache_salt=uuid4().hex)
    for result in (ahead, plain):
        first, resume = result.kv.steps
        assert resume.prompt - resume.new > 200
        assert (first.cached, resume.cached) == (first.predicted, resume.predicted)
    assert ahead.kv.steps[1].prefilled >= 200
    assert plain.kv.steps[1].prefilled == 0
    assert ahead.kv.totals.wasted == 0
    assert ahead.output == plain.output
    assert ahead.messages == plain.messages


async def test_the_floor_of_an_unprefetched_resume(vllm_engine: VLLMEngine, prompts: Iterator[str]) -> None:
    async with akv.Runtime(vllm_engine) as rt:
        result = await rt.run(office(weigh), next(prompts), deps=0.1, kv=kv("prefix"), cache_salt=uuid4().hex)
    first, resume = result.kv.steps
    assert resume.cached == (first.prompt + first.generated - 1) // 32 * 32


async def test_a_resume_that_adopts_hits_at_least_what_was_done(
    vllm_engine: VLLMEngine, prompts: Iterator[str]
) -> None:
    async with akv.Runtime(vllm_engine) as rt:
        for seconds in (0.4, 0.6, 0.8):
            run = rt.start(
                office(rules, weigh), next(prompts), deps=seconds, kv=kv("bidirectional"), cache_salt=uuid4().hex
            )
            async with run:
                events = [event async for event in run]
                result = await run.result()
            resume = result.kv.steps[1]
            done = max((event.end for event in events if event.type == "prefetched"), default=0)
            assert resume.cached >= resume.predicted >= done
            assert result.kv.totals.aborted <= 64
            if resume.adopted:
                break
    assert resume.adopted, "no resume came while its prefetch was in flight"


async def test_runs_side_by_side_keep_to_themselves(vllm_engine: VLLMEngine, prompts: Iterator[str]) -> None:
    chosen = [next(prompts) for _ in range(3)]
    graph = office(rules, weigh)
    async with akv.Runtime(vllm_engine, kv=kv("bidirectional")) as rt:
        alone = [(await rt.run(graph, prompt, deps=0.1, cache_salt=uuid4().hex)).messages for prompt in chosen]
        together: dict[str, tuple[akv.Message, ...]] = {}

        async def one(prompt: str) -> None:
            together[prompt] = (await rt.run(graph, prompt, deps=0.5, cache_salt=uuid4().hex)).messages

        async with anyio.create_task_group() as tasks:
            for prompt in chosen:
                tasks.start_soon(one, prompt)
    assert [together[prompt] for prompt in chosen] == alone


@pytest.mark.parametrize("at", ["generation_asked", "text_delta", "call_started", "prefetched"])
async def test_cancelled_runs_leave_nothing_in_the_engine(
    vllm_engine: VLLMEngine, prompts: Iterator[str], at: str
) -> None:
    store = MemoryStore()
    async with akv.Runtime(vllm_engine, store=store, kv=kv("bidirectional")) as rt:
        async with rt.start(office(rules, weigh), next(prompts), deps=30.0, cache_salt=uuid4().hex) as run:
            async for event in run:
                if event.type == at:
                    run.cancel()
            with pytest.raises(akv.RunCancelled):
                await run.result()
        stats = await rt.engine.stats()
        assert (stats["running"], stats["waiting"]) == (0, 0)
        events = [from_journal(entry) for entry in await store.load(run.id)]
        assert replay(run._program, events) == run.state


async def test_a_prompt_that_is_too_long_never_reaches_the_engine(vllm_engine: VLLMEngine) -> None:
    async with akv.Runtime(vllm_engine) as rt:
        before = await rt.engine.stats()
        with pytest.raises(akv.PromptTooLong, match="node 'plan'"):
            await rt.run(office(weigh), "word " * 5000, deps=0.1)
        assert (await rt.engine.stats())["prompt_tokens"] == before["prompt_tokens"]


async def test_switched_off_reads_no_cache(vllm_engine: VLLMEngine, prompts: Iterator[str]) -> None:
    async with akv.Runtime(vllm_engine) as rt:
        result = await rt.run(office(weigh), next(prompts), deps=0.1, kv=kv("off"), cache_salt=uuid4().hex)
    assert [step.cached for step in result.kv.steps] == [0, 0]
    assert result.kv.totals.reduction_critical == 0
