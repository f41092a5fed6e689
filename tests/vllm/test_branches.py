"""Branches on a real vLLM: 128 usable blocks of 32 tokens, float32; every figure is the engine's own count."""

from collections.abc import Callable, Iterator
from contextlib import aclosing
from statistics import median
from typing import Any, Literal
from uuid import uuid4

import anyio
import pytest

import agentkv as akv
from agentkv.common_prefix import common_prefix
from agentkv.engines import GenerateRequest, PrefillRequest, Usage
from agentkv.engines.vllm import VLLMEngine

pytestmark = pytest.mark.vllm("leases")

BLOCK = 32
LOOK_SECONDS, IDLE_LOOKS = 0.1, 5
WAYS = {"cheap": "Say the cheapest way to mend it.", "safe": "Say the safest way to mend it."}
RULE = "Rule {n}: a parcel of more than {n} kilograms goes by the slow van, and the van leaves at {n} o'clock. "
RULES = "".join(RULE.format(n=n) for n in range(1, 38))
fixer = akv.Agent("fixer", instructions="You mend what is broken, in few words. " * 4, max_tokens=8)


def kv(mode: akv.TransferMode = "bidirectional", **more: Any) -> akv.KVConfig:
    return akv.KVConfig(kv_transfer_mode=mode, prefetch_step=64, anchor_ttl=0.5, **more)


@pytest.fixture
def salts() -> Iterator[str]:
    return iter(lambda: uuid4().hex, "")


async def check_clean(engine: VLLMEngine) -> None:
    """Nothing of anybody's is left in the engine, the leases of anchors included once their time is over."""
    with anyio.fail_after(10):
        while (stats := await engine.kv("stats", {}))["leases"] or stats["free_blocks"] != stats["pool_blocks"]:
            await anyio.lowlevel.checkpoint()
    assert (stats["errors"], stats["runs"], stats["live_requests"]) == ({}, 0, 0)


def mending(strategy: Any) -> akv.Graph[None, str]:
    g = akv.Graph("mending")
    ways = g.fork("ways", WAYS)
    g.path(akv.START, g.plan("plan", fixer), ways)
    g.path(g.join("best", ways, strategy), g.replan("report", fixer), akv.END)
    return g


async def chain_of(rt: akv.Runtime, graph: Any, prompt: str, salt: str) -> tuple[list[int], akv.Result[Any]]:
    async with rt.start(graph, prompt, cache_salt=salt) as run:
        result = await run.result()
    [chain] = run.state.chains.values()
    return chain.chain.ids(), result


async def by_hand(rt: akv.Runtime, texts: list[str], generate: list[bool], salt: str) -> list[int]:
    """The tokens of a conversation in which each text is appended, and answered where ``generate`` says so."""
    chain = rt.chain(fixer, cache_salt=salt, kv=kv("prefix"))
    for text, answered in zip(texts, generate, strict=True):
        chain.append(*([text] if text else []))
        if answered:
            await chain.generate()
    await chain.release()
    return chain.ids


async def test_all_of_gives_the_tokens_of_a_sequential_run(vllm_engine: VLLMEngine, salts: Iterator[str]) -> None:
    prompt = "The belt of the parcel sorter slips."
    async with akv.Runtime(vllm_engine, kv=kv()) as rt:
        ids, result = await chain_of(rt, mending(akv.all_of()), prompt, next(salts))
        joined = result.messages[2].content
        assert joined.startswith("cheap:\n")
        assert "safe:\n" in joined
        assert ids == await by_hand(rt, [prompt, joined], [True, True], next(salts))
    await check_clean(vllm_engine)


async def test_winner_gives_the_tokens_of_a_run_with_the_winner_alone(
    vllm_engine: VLLMEngine, salts: Iterator[str]
) -> None:
    prompt = "The lamp of the parcel scale flickers."
    async with akv.Runtime(vllm_engine, kv=kv()) as rt:
        ids, result = await chain_of(rt, mending(akv.winner(choose=lambda outputs: "safe")), prompt, next(salts))
        assert ids == await by_hand(rt, [prompt, WAYS["safe"], ""], [True, True, True], next(salts))
    assert result.kv.steps[-1].computed <= BLOCK
    await check_clean(vllm_engine)


async def test_a_judge_chooses_on_the_trunk(vllm_engine: VLLMEngine, salts: Iterator[str]) -> None:
    async with akv.Runtime(vllm_engine, kv=kv()) as rt:
        result = await rt.run(mending(akv.winner(judge=fixer)), "The door sticks.", cache_salt=next(salts))
    assert result.messages[2].content in WAYS.values()
    judge = next(step for step in result.kv.steps if step.branch == "best.judge")
    assert judge.resident + judge.prefilled >= (result.kv.steps[0].prompt // BLOCK) * BLOCK
    await check_clean(vllm_engine)


QUESTIONS = tuple(f"Which rules are about {number} kilograms?" for number in range(4))


@pytest.mark.parametrize("while_it_decodes", [False, True])
async def test_four_branches_compute_the_trunk_once(
    vllm_engine: VLLMEngine, salts: Iterator[str], while_it_decodes: bool
) -> None:
    """At most trunk + the branches' own + a block each; also when they begin while it is computed and decodes."""
    async with akv.Runtime(vllm_engine, kv=kv()) as rt:
        chain = rt.chain(fixer, cache_salt=next(salts))
        chain.append(RULES)
        if not while_it_decodes:
            await chain.generate(max_tokens=8)
        held = len(chain.ids)
        async with anyio.create_task_group() as tasks:
            forks = [chain.fork() for _ in range(4)]
            if while_it_decodes:
                tasks.start_soon(chain.generate)
            for question, fork in zip(QUESTIONS, forks, strict=True):
                fork.append(question)
                tasks.start_soon(fork.generate)
        [trunk] = [step for step in chain.steps if not step.branch]
        branches = [step for step in chain.steps if step.branch]
        await chain.release()
    shared = trunk.prompt if while_it_decodes else held
    assert trunk.prompt > 1000
    own = [step.prompt - shared for step in branches]
    assert len(own) == 4
    assert sum(step.computed for step in (trunk, *branches)) <= trunk.prompt + sum(own) + 4 * BLOCK
    await check_clean(vllm_engine)


@pytest.mark.vllm("float32")
@pytest.mark.parametrize("while_it_decodes", [False, True])
async def test_what_stock_vllm_computes_for_four_branches(
    vllm_engine: VLLMEngine,
    salts: Iterator[str],
    while_it_decodes: bool,
    record_property: Callable[[str, object], None],
) -> None:
    """The figure beside ours: a client that renders each branch's prompt, and sends it."""
    salt = next(salts)
    async with akv.Runtime(vllm_engine) as rt:
        render, said = rt.format.render, (akv.Message(role="user", content=RULES),)
        prompts = [render(fixer.instructions, (), said)]
        usages = [] if while_it_decodes else [await usage(vllm_engine, prompts[0], salt, 8)]
        messages = said if while_it_decodes else (*said, akv.Message(role="assistant", content="By van."))
        asked = [(*messages, akv.Message(role="user", content=question)) for question in QUESTIONS]
        prompts += [render(fixer.instructions, (), each) for each in asked]

        async def send(prompt: list[int]) -> None:
            usages.append(await usage(vllm_engine, prompt, salt, 8))

        async with anyio.create_task_group() as tasks:
            for prompt in prompts[len(usages) :]:
                tasks.start_soon(send, prompt)
    own = sum(len(prompt) - common_prefix(prompts[0], prompt) for prompt in prompts[1:])
    computed = sum(each.prompt - each.cached for each in usages)
    record_property("computed", f"{computed} of trunk {len(prompts[0])} and own {own}")
    print("stock:", while_it_decodes, len(prompts[0]), own, computed)
    assert computed <= len(prompts[0]) + own + 4 * BLOCK


async def usage(engine: VLLMEngine, prompt: list[int], salt: str, tokens: int) -> Usage:
    """What the engine says about a request that comes with nothing of ours."""
    request = GenerateRequest(request_id=uuid4().hex, token_ids=prompt, max_tokens=tokens, cache_salt=salt)
    async with aclosing(engine.generate(request)) as deltas:
        found = [delta.usage async for delta in deltas]
    assert found[-1] is not None
    return found[-1]


class Queue:
    """Calls are answered one after the other; all but the first when the engine has had nothing to do for a while."""

    def __init__(self, engine: VLLMEngine) -> None:
        self.engine, self.calls, self.turn = engine, 0, anyio.Lock()

    async def wait(self) -> int:
        """The number of the call, when it is its turn."""
        async with self.turn:
            idle = 0
            while self.calls and idle < IDLE_LOOKS:
                await anyio.sleep(LOOK_SECONDS)
                idle = 0 if (await self.engine.kv("stats", {}))["live_requests"] else idle + 1
            self.calls += 1
            return self.calls


@akv.tool
async def rules(ctx: akv.Context[Queue], topic: Literal["vans"]) -> str:
    """Rules on a topic, some 250 tokens of them."""
    number = await ctx.deps.wait()
    return f"{topic} {number}: " + "".join(RULE.format(n=f"{number}{n}") for n in range(8))


clerk = akv.Agent("clerk", instructions="You read rules.", tools=[rules], deps=Queue, max_tokens=32)


def reading(strategy: Any) -> akv.Graph[Queue, str]:
    """Four branches whose outputs come one after the other."""
    one = akv.Graph("one", deps=Queue)
    one.path(akv.START, one.plan("ask", clerk, tool_choice=[rules]), one.tool("read"), akv.END)
    g = akv.Graph("reading", deps=Queue)
    parts = g.fork("parts", [f"Read the rules, part {n}." for n in range(1, 5)], agent=clerk, body=one)
    last = g.replan("sum", clerk, tool_choice="none", max_tokens=2)
    g.path(akv.START, parts)
    g.path(g.join("all", parts, strategy), last, akv.END)
    return g


async def test_a_join_waits_for_what_came_last_only(vllm_engine: VLLMEngine, salts: Iterator[str]) -> None:
    """Between the last output and the first token: that output and two blocks; 0.4 of the TTFT of joining after all."""
    graph = reading(akv.all_of(order="arrival"))
    async with (
        akv.Runtime(vllm_engine, kv=kv()) as rt,
        rt.start(graph, "Read.", deps=Queue(vllm_engine), cache_salt=next(salts)) as run,
    ):
        result = await run.result()
        [chain] = run.state.chains.values()
        last = rt.format.tokenizer.count(result.messages[-2].content.split("\n\n")[-1])
        join = result.kv.steps[-1]
    assert last >= 200
    assert join.computed <= last + 2 * BLOCK
    # The same prompt with as much of it computed before, and with the trunk alone: by turns, for machines are busy.
    prompt, trunk = chain.chain.ids()[: join.prompt], result.kv.steps[0].prompt // BLOCK * BLOCK
    ahead, plain = [], []
    for _ in range(3):
        ahead.append(await ttft(vllm_engine, prompt, join.cached, next(salts)))
        plain.append(await ttft(vllm_engine, prompt, trunk, next(salts)))
    assert join.prompt - trunk > 3 * last
    print("join:", last, join.computed, join.prompt, ahead, plain, result.kv.ttft[-1])
    assert median(ahead) <= 0.4 * median(plain)
    await check_clean(vllm_engine)


async def ttft(engine: VLLMEngine, prompt: list[int], resident: int, salt: str) -> float:
    """Seconds to the first token of ``prompt``, of which the first ``resident`` tokens have KV."""
    before = PrefillRequest(request_id=uuid4().hex, token_ids=prompt[:resident], cache_salt=salt)
    await engine.prefill(before)
    asked = engine.clock.now()
    found = await usage(engine, prompt, salt, 1)
    assert found.cached == resident
    return engine.clock.now() - asked


async def test_losers_blocks_are_free_before_the_winner_goes_on(vllm_engine: VLLMEngine, salts: Iterator[str]) -> None:
    async with akv.Runtime(vllm_engine, kv=kv()) as rt:
        run = rt.start(reading(akv.first()), RULES[:1000], deps=Queue(vllm_engine), cache_salt=next(salts))
        async with run:
            async for event in run:
                if event.type == "generation_asked" and event.node == "sum":
                    stats, prompt = await vllm_engine.kv("stats", {}), event.prompt
            result = await run.result()
    assert [status for _, status in result.kv.branches].count("cancelled") == 3
    assert stats["leases_by_class"].get("branch", 0) == 0
    # the winner's blocks, and those of the request that has just been sent
    assert stats["pool_blocks"] - stats["free_blocks"] <= -(-prompt // BLOCK) + 2
    await check_clean(vllm_engine)


TROUBLES = ("The van to Oslo is late. ", "The car to Bonn is lost. ", "The bus to Rome is full. ")


async def test_runs_and_branches_of_equal_length_keep_to_themselves_at_all_sync_levels(
    vllm_engine: VLLMEngine, salts: Iterator[str]
) -> None:
    async with akv.Runtime(vllm_engine) as rt:

        async def one(trouble: str, config: akv.KVConfig, into: dict[str, Any]) -> None:
            into[trouble] = await rt.run(mending(akv.all_of()), trouble * 6, kv=config, cache_salt=next(salts))

        alone: dict[str, Any] = {}
        for trouble in TROUBLES:
            await one(trouble, kv("prefix"), alone)
        # Were their answers equal, one branch's KV in another's prompt could pass unseen.
        said = [[m.content for m in result.messages[1:]] for result in alone.values()]
        assert len({str(each) for each in said}) > 1
        for level in (0, 1, 2):
            together: dict[str, Any] = {}
            async with anyio.create_task_group() as tasks:
                for trouble in TROUBLES:
                    tasks.start_soon(one, trouble, kv(transfer_sync_level=level), together)
            for trouble in TROUBLES:
                assert together[trouble].messages == alone[trouble].messages, (level, trouble)
    await check_clean(vllm_engine)
