"""Blocks leave and come back at random while other requests decode: nothing that the model says depends on it."""

import os
import random
from typing import Any

import anyio
import pytest

from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.kv import Directive

pytestmark = pytest.mark.vllm("tier")

SEED = int(os.environ.get("AGENTKV_TIER_SEED", "5"))
TALKS, TURNS = 4, 3
# Held by an anchor, which stays: of 128 blocks the conversations have 78, for which they are too large together.
ANCHORED = 50 * 32


async def first_choices(engine: VLLMEngine, ids: list[int]) -> list[int]:
    """The id that the model likes best behind each of ``ids`` but the last, computed anew in one go."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input

    # Who asks for these reads nothing that is cached.
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1, detokenize=False)
    found: list[int] = []
    async for output in engine._llm().generate(tokens_input(ids), params, f"first choices of {ids[0]}"):
        places = [place for place in output.prompt_logprobs or () if place]
        found += [next(i for i, of in place.items() if of.rank == 1) for place in places]
    return found


async def anchor(engine: VLLMEngine) -> str:
    ids = random.Random(SEED).choices(range(100, 40_000), k=ANCHORED)
    directive = Directive(run="tier", lease_class="anchor", ttl=600.0)
    request = GenerateRequest(request_id="the anchor", token_ids=ids, max_tokens=1, directive=directive)
    (*_, last) = [delta async for delta in engine.generate(request)]
    assert last.grant is not None
    assert last.grant.token is not None
    return last.grant.token


async def test_loads_and_stores_at_random_change_nothing_that_is_said(vllm_engine: VLLMEngine, talker: Any) -> None:
    print(f"repeat it with AGENTKV_TIER_SEED={SEED}")
    dice = random.Random(SEED)
    before = (await vllm_engine.kv("stats", {}))["tier_totals"]
    talkers = [talker(vllm_engine, random.Random(dice.random())) for _ in range(TALKS)]
    held: dict[int, Any] = {}

    async def hold(number: int) -> None:
        held[number] = await talkers[number].hold(f"{SEED}/{number}", TURNS)

    token = await anchor(vllm_engine)
    async with anyio.create_task_group() as tasks:
        for number in range(TALKS):
            tasks.start_soon(hold, number)
    await vllm_engine.kv("release", {"tokens": [token]})
    stats = await vllm_engine.kv("stats", {})
    with anyio.move_on_after(10):
        while stats["leases"] or any(stats["tier_moving"].values()):
            stats = await vllm_engine.kv("stats", {})
    moved = {name: stats["tier_totals"][name] - before[name] for name in ("copied", "fetched", "waits")}
    print(moved, [dict(each.moves) for each in talkers])
    assert moved["copied"] > 30
    assert moved["fetched"] > 10
    for ids, said in held.values():
        choices = await first_choices(vllm_engine, ids)
        for at, answer in said:
            assert tuple(choices[at - 1 : at - 1 + len(answer)]) == answer
    assert (stats["leases"], stats["tier_used"], stats["errors"]) == (0, 0, {})
