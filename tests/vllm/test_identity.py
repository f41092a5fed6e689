"""Prefilling ahead changes when KV is computed, never what is generated: greedy, float32, token for token.

With ``AGENTKV_TRAJECTORIES=FOLDER`` the runs are those of 20 conversations recorded there, one a parameter.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import agentkv as akv
from agentkv.chain import ChatFormat, Message, ToolDefinition, from_openai
from agentkv.engines.base import GenerateRequest, PrefillRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.follow import missing_tokens
from agentkv.store import MemoryStore
from agentkv.trace import Trajectory, find_files, read_trajectories

pytestmark = pytest.mark.vllm("float32")

TRAJECTORIES = Path(__file__).parents[1] / "data" / "trajectories"
TURNS = 20
LEAST_CACHED = 200
GENERATED = 12
STEP = 192
NUMBERS = count()
GIVEN = os.environ.get("AGENTKV_TRAJECTORIES")
RUNS = 20 if GIVEN else 1
MOST_PROMPT = 2000
LEAST_TOLD = 150

Conversation = list[tuple[int, list[int]]]


@pytest.fixture(scope="module")
def chat(demo_model_path: Path) -> ChatFormat:
    return ChatFormat.load(demo_model_path)


def groups(chat: ChatFormat) -> Iterator[tuple[str, Conversation]]:
    """Recorded conversations: for each turn behind tool results, the tokens held before these, and the prompt."""
    for file in sorted(TRAJECTORIES.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            recorded = json.loads(line)
            yield f"{file.stem} {recorded['id']}", _turns(chat, recorded)


def _turns(chat: ChatFormat, recorded: dict[str, Any]) -> Conversation:
    system = recorded.get("system") or ""
    tools = [ToolDefinition(**_definition(tool)) for tool in recorded.get("tools") or []]
    messages = from_openai(recorded["turns"])
    found = []
    for number, message in enumerate(messages[:-1]):
        if message.role == "assistant" and messages[number + 1].role == "tool":
            end = _next_assistant(messages, number + 1)
            before, new = messages[: number + 1], messages[number + 1 : end]
            held = chat.render(system, tools, before, generation_prompt=False)
            found.append((len(held), chat.render(system, tools, [*before, *new])))
    return found


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    return {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }


def _next_assistant(messages: Sequence[Message], start: int) -> int:
    return next((i for i in range(start, len(messages)) if messages[i].role == "assistant"), len(messages))


async def generate(engine: VLLMEngine, ids: list[int], salt: str) -> tuple[list[int], int]:
    """What greedy decoding says, and how many prompt tokens were cached."""
    request = GenerateRequest(
        request_id=f"i{next(NUMBERS)}", token_ids=ids, max_tokens=GENERATED, cache_salt=salt, stop_token_ids=()
    )
    deltas = [delta async for delta in engine.generate(request)]
    assert deltas[-1].usage is not None
    return [token for delta in deltas for token in delta.token_ids], deltas[-1].usage.cached


async def prefill_ahead(engine: VLLMEngine, ids: list[int], resident: int, step: int, salt: str) -> None:
    """Prefill the whole blocks of ``ids`` as a follower does."""
    block = engine.info.block_size
    while missing := missing_tokens(resident, len(ids), block):
        end = resident // block * block + min(missing, max(block, step // block * block))
        await engine.prefill(PrefillRequest(request_id=f"p{next(NUMBERS)}", token_ids=ids[:end], cache_salt=salt))
        resident = end


async def test_recorded_turns_decode_the_same(vllm_engine: VLLMEngine, chat: ChatFormat) -> None:
    compared = 0
    for name, conversation in groups(chat):
        ahead, plain = uuid4().hex, uuid4().hex
        resident = 0
        for held, ids in conversation:
            await prefill_ahead(vllm_engine, ids, resident, STEP, ahead)
            resident = held // vllm_engine.info.block_size * vllm_engine.info.block_size
            with_it, cached = await generate(vllm_engine, ids, ahead)
            without, _ = await generate(vllm_engine, ids, plain)
            assert cached == (len(ids) - 1) // vllm_engine.info.block_size * vllm_engine.info.block_size, name
            assert cached >= LEAST_CACHED
            assert with_it == without, name
            compared += 1
    assert compared >= TURNS


async def test_a_wrong_block_is_seen(vllm_engine: VLLMEngine, chat: ChatFormat) -> None:
    _, conversation = next(groups(chat))
    _, ids = conversation[0]
    salt = uuid4().hex
    right, _ = await generate(vllm_engine, ids, salt)
    assert (await generate(vllm_engine, ids, salt))[0] == right
    llm = vllm_engine._llm()
    try:
        for block in range(1, vllm_engine.info.pool_blocks + 1):
            assert await llm.collective_rpc("spoil_block", args=(block,)) != [0]
            if (await generate(vllm_engine, ids, salt))[0] != right:
                return
        pytest.fail("the comparison does not notice wrong KV in any block")
    finally:
        await llm.reset_prefix_cache()


def conversations(chat: ChatFormat) -> Iterator[Trajectory]:
    """Recorded conversations that fit the engine and have two results that are worth telling, the files in turn."""
    files = find_files([Path(GIVEN) if GIVEN else TRAJECTORIES], (".jsonl", ".jsonl.gz"))
    queues = [read_trajectories(file) for file in reversed(files)]
    while queues:
        for queue in tuple(queues):
            told = (each for each in queue if fits(chat, each))
            if (found := next(told, None)) is None:
                queues.remove(queue)
            else:
                yield found


def results(recorded: Trajectory) -> list[str]:
    return [message.content for message in recorded.messages if message.role == "tool"]


def fits(chat: ChatFormat, recorded: Trajectory) -> bool:
    first_two = results(recorded)[:2]
    if len(first_two) < 2 or sum(map(chat.tokenizer.count, first_two)) < LEAST_TOLD:
        return False
    return len(chat.render(recorded.system, (), recorded.messages[:1])) <= MOST_PROMPT


def desk(recorded: Trajectory) -> akv.Graph[None, str]:
    """An agent with the recorded instructions that is given two recorded results, streamed and guessed at in part."""
    first, second = results(recorded)[:2]

    @akv.tool(max_tokens=256)
    async def listen(ctx: akv.Context[None]) -> AsyncIterator[str]:
        """Listen to the first result."""
        for start in range(0, len(first), 200):
            await ctx.sleep(0.1)
            yield first[start : start + 200]

    @akv.tool(max_tokens=256, predict=lambda _: second[: len(second) // 2] + "And so on, as ever. " * 16)
    async def read(ctx: akv.Context[None]) -> str:
        """Read the second result."""
        await ctx.sleep(1.5)
        return second

    agent = akv.Agent("told", instructions=recorded.system, tools=[listen, read], max_tokens=48)
    graph = akv.Graph("told", output=str)
    plan, hear = graph.plan("plan", agent, tool_choice=[listen]), graph.tool("hear")
    again, look = graph.replan("again", agent, tool_choice=[read]), graph.tool("look")
    answer = graph.replan("answer", agent, tool_choice="none", max_tokens=GENERATED)
    graph.path(akv.START, plan, hear, again, look, answer, akv.END)
    return graph


async def told(engine: VLLMEngine, recorded: Trajectory, mode: akv.config.TransferMode) -> tuple[list[Any], Any]:
    """The ids that were generated, by generation, and the run's account."""
    kv, store = akv.KVConfig(kv_transfer_mode=mode, anchor_ttl=0.5), MemoryStore()
    async with akv.Runtime(engine, kv=kv, store=store) as rt:
        result = await rt.run(desk(recorded), recorded.messages[0].content, cache_salt=uuid4().hex)
        events = await store.load(result.kv.run_id)
    return [event["token_ids"] for event in events if event["type"] == "generation_finished"], result.kv


@pytest.mark.parametrize("number", range(RUNS))
async def test_runs_with_streams_and_guesses_decode_the_same(
    vllm_engine: VLLMEngine, chat: ChatFormat, number: int
) -> None:
    recorded = list(islice(conversations(chat), number + 1))[number]
    (ahead, account), (plain, _) = [await told(vllm_engine, recorded, mode) for mode in ("bidirectional", "prefix")]
    assert ahead == plain, recorded.id
    assert len(ahead) == 3
    assert account.steps[-1].cached >= LEAST_CACHED
    assert account.totals.prefetched_used > 0
    assert "hook" in {source.name for source in account.sources}
