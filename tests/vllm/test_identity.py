"""Prefilling ahead changes when KV is computed, never what is generated: greedy, float32, token for token."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentkv.chain import ChatFormat, Message, ToolDefinition, from_openai
from agentkv.engines.base import GenerateRequest, PrefillRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.follow import missing_tokens

pytestmark = pytest.mark.vllm("identity")

TRAJECTORIES = Path(__file__).parents[1] / "data" / "trajectories"
TURNS = 20
LEAST_CACHED = 200
GENERATED = 12
NUMBERS = count()

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
            await prefill_ahead(vllm_engine, ids, resident, 64, ahead)
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
