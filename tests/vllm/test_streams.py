"""A streamed result, a repeated one, a wrong guess, on a real engine: little is left to compute, no answer changes."""

from collections.abc import AsyncIterator
from typing import Literal
from uuid import uuid4

import anyio
import pytest
from attrs import Factory, define

import agentkv as akv
from agentkv.chain import ChatFormat, Message
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("leases")

PIECES = 24
LINE = "unit {n:02} of the nightly build: done, nothing to report, kept under unit-{n:02}.\n"
PAGE = "".join(f"Section {n}: parcels of kind {n} leave with van {n % 4} at {n} o'clock.\n" for n in range(14))
OTHER = PAGE[: len(PAGE) // 2] + "From here on all vans are late, and nobody knows by how much.\n" * 6
BLOCK = 32


@akv.tool
async def log(ctx: akv.Context[None], job: Literal["nightly"]) -> AsyncIterator[str]:
    """Read the log to its end; six seconds."""
    for n in range(PIECES):
        await ctx.sleep(6.0 / PIECES)
        yield f"{job}: {LINE.format(n=n)}"


@define
class Desk:
    """Pages to be read; the second is there when ``prefilled`` is set, which on a busy machine takes its time."""

    pages: list[str]
    read: int = 0
    prefilled: anyio.Event = Factory(anyio.Event)


@akv.tool(read_only=True)
async def read(ctx: akv.Context[Desk], page: Literal["first"]) -> str:
    """Read a page."""
    desk = ctx.deps
    desk.read += 1
    if desk.read == 2:
        with anyio.fail_after(100):
            await desk.prefilled.wait()
    return f"{page}\n{desk.pages[desk.read - 1]}"


watcher = akv.Agent("watcher", instructions="You watch builds. " * 8, tools=[log], max_tokens=48)
clerk = akv.Agent("clerk", instructions="You read before you answer. " * 8, tools=[read], deps=Desk, max_tokens=48)


def behind_result(chat: ChatFormat, messages: tuple[Message, ...]) -> int:
    """Tokens of the template between the end of the first result and the next turn."""
    before, result = messages[:2], messages[2]
    return len(chat.delta("", (), before, [result])) - len(chat.known("", (), before, [None], True, result.content))


async def ask(engine: VLLMEngine, target: akv.Graph[None, str], mode: akv.TransferMode) -> akv.Result[str]:
    kv = akv.KVConfig(kv_transfer_mode=mode, anchor_ttl=0.5)
    async with akv.Runtime(engine, kv=kv) as rt:
        return await rt.run(target, "How did it go?", cache_salt=uuid4().hex)


async def test_a_stream_is_resident_when_it_ends(vllm_engine: VLLMEngine) -> None:
    graph = akv.Graph("watch", output=str)
    plan, act = graph.plan("plan", watcher, tool_choice=[log]), graph.tool("act")
    answer = graph.replan("answer", watcher, tool_choice="none", max_tokens=12)
    graph.path(akv.START, plan, act, answer, akv.END)
    ahead, whole = await ask(vllm_engine, graph, "bidirectional"), await ask(vllm_engine, graph, "prefix")
    assert ahead.messages == whole.messages
    chat = ChatFormat.load(vllm_engine.info.model_path)
    log_text = ahead.messages[2].content
    assert chat.tokenizer.count(log_text) >= 600
    assert whole.kv.steps[1].computed >= 600
    last_chunk = chat.tokenizer.count(log_text.splitlines()[-1] + "\n")
    assert ahead.kv.steps[1].computed <= behind_result(chat, ahead.messages) + last_chunk + 2 * BLOCK
    assert ahead.kv.ttft_after_tool[0] <= 0.25 * whole.kv.ttft_after_tool[0]


async def read_twice(engine: VLLMEngine, desk: Desk, mode: akv.TransferMode) -> akv.Result[str]:
    """The same call twice; in mode ``bidirectional`` the second returns when its guess has been prefilled."""
    graph = akv.Graph("desk", deps=Desk, output=str)
    first, look = graph.plan("first", clerk, tool_choice=[read]), graph.tool("look")
    again, back = graph.replan("again", clerk, tool_choice=[read]), graph.tool("back")
    answer = graph.replan("answer", clerk, tool_choice="none", max_tokens=12)
    graph.path(akv.START, first, look, again, back, answer, akv.END)
    prompts: list[int] = []
    kv = akv.KVConfig(kv_transfer_mode=mode, anchor_ttl=0.5)
    async with (
        akv.Runtime(engine, kv=kv) as rt,
        rt.start(graph, "Which van?", deps=desk, cache_salt=uuid4().hex) as run,
    ):
        if mode == "prefix":
            desk.prefilled.set()
        async for event in run:
            if event.type == "generation_asked":
                prompts.append(event.prompt)
            # What is guessed makes the prompt as much longer as the first call did.
            elif (
                event.type == "prefetched"
                and len(prompts) == 2
                and event.end >= 2 * prompts[1] - prompts[0] - 2 * BLOCK
            ):
                desk.prefilled.set()
        return await run.result()


@pytest.mark.parametrize("second", [PAGE, OTHER], ids=["equal", "half equal"])
async def test_a_repeated_call_reuses_what_is_the_same(vllm_engine: VLLMEngine, second: str) -> None:
    ahead = await read_twice(vllm_engine, Desk([PAGE, second]), "bidirectional")
    cold = await read_twice(vllm_engine, Desk([PAGE, second]), "prefix")
    assert ahead.messages == cold.messages
    if second == PAGE:
        assert ahead.kv.steps[2].computed <= 2 * BLOCK
    else:
        assert ahead.kv.steps[2].computed < 0.75 * cold.kv.steps[2].computed
    assert {each.name for each in ahead.kv.sources} >= {"memo"}
