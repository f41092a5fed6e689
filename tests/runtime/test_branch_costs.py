"""What forks and joins compute, and when KV is given back: exact figures on the simulated engine."""

from collections.abc import Sequence
from typing import Any

import pytest

import agentkv as akv
from agentkv.testing import Recording, Script, ScriptedTurn, call, label, say

from .conftest import Open

BLOCK = 32
ENGINE = {"pool_blocks": 600, "max_model_len": 6000}
RULES = "".join(f"Rule {n}: a parcel of {n} kilograms goes by van {n}. " for n in range(1, 56))
WAYS = {name: f"Go {name} and say why. " * 3 for name in ("north", "east", "south", "west")}


@akv.tool
async def look(ctx: akv.Context[None], seconds: float) -> str:
    """Look, for so many seconds."""
    await ctx.sleep(seconds)
    return "seen"


guide = akv.Agent("guide", instructions="You know the way. " * 10, tools=[look], max_tokens=600)


def forked(strategy: Any, *, plan: bool = True, **options: Any) -> akv.Graph[None, str]:
    g = akv.Graph("ways")
    ways = g.fork("ways", WAYS, agent=guide, **options)
    g.path(akv.START, *([g.plan("plan", guide, tool_choice="none")] if plan else []), ways)
    g.path(g.join("way", ways, strategy), g.replan("go", guide, tool_choice="none"), akv.END)
    return g


def script(*, plan: bool = True, waits: Sequence[float] = (), tokens: int = 20) -> Script:
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [*([say("Hm.")] if plan else []), say("Gone.")]}
    for number, name in enumerate(WAYS):
        words = say("and " * (tokens - 10) + f"so {name}")
        turns[f"ways.{name}"] = [call("look", seconds=waits[number]), words] if waits else [words]
    return Script(turns)


def kv(mode: akv.TransferMode) -> akv.KVConfig:
    return akv.KVConfig(kv_transfer_mode=mode)


@pytest.mark.parametrize("plan", [True, False], ids=["behind a turn", "on a prompt that nobody computed"])
async def test_four_branches_compute_the_trunk_once(runtime: Open, plan: bool) -> None:
    """At most the trunk, what is their own, and a block each."""
    asked = Recording(script(plan=plan))
    async with runtime(asked, engine=ENGINE, kv=kv("prefix")) as rt:
        result = await rt.run(forked(akv.all_of(), plan=plan, tools=()), RULES)
    prompts = [request.token_ids for request in asked.requests if ">" in request.tag]
    trunk = next(at for at, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1)
    own = [len(prompt) - trunk for prompt in prompts]
    assert len(own) == 4
    assert trunk > 1000
    computed = sum(step.computed for step in result.kv.steps if step.node == "plan")
    assert computed <= trunk + sum(own) + 4 * BLOCK


@pytest.mark.parametrize("order", ["declared", "arrival"])
async def test_a_join_waits_for_what_came_last_only(runtime: Open, order: Any) -> None:
    """Four outputs of 250 tokens, one after the other: at the join only the last is left to compute, and two blocks."""
    waits, graph = (1.0, 21.0, 41.0, 61.0), forked(akv.all_of(order=order))
    async with runtime(script(waits=waits, tokens=250), engine=ENGINE) as rt:
        ahead = await rt.run(graph, RULES, kv=kv("bidirectional"), cache_salt="a")
    async with runtime(script(waits=waits, tokens=250), engine=ENGINE) as rt:
        plain = await rt.run(graph, RULES, kv=kv("prefix"), cache_salt="b")
    joins = [result.kv.steps[-1] for result in (ahead, plain)]
    last = rt.format.tokenizer.count(ahead.messages[2].content.split("\n\n")[-1])
    assert 240 <= last <= 270
    assert joins[0].computed <= last + 2 * BLOCK
    assert joins[1].computed > 4 * 240
    assert ahead.kv.ttft[-1] <= 0.4 * plain.kv.ttft[-1]
    assert ahead.messages == plain.messages


async def test_an_output_is_prefilled_while_it_still_decodes(runtime: Open) -> None:
    async with runtime(script(waits=(0.1, 0.1, 0.1, 20.0), tokens=250), engine=ENGINE) as rt:
        result = await rt.run(forked(akv.all_of()), RULES, kv=kv("bidirectional"))
    assert result.kv.steps[-1].computed <= 5 * BLOCK


@pytest.mark.parametrize("strategy", [akv.first(), akv.winner(choose=max), akv.winner(judge=guide)])
async def test_who_has_not_spoken_behind_a_winner_finds_what_was_said_before_the_branches(
    runtime: Open, strategy: Any
) -> None:
    g = akv.Graph("ways")
    ways = g.fork("ways", WAYS, agent=guide)
    clerk = akv.Agent("clerk", instructions="You write reports. " * 10, max_tokens=50)
    g.path(akv.START, g.plan("plan", guide, tool_choice="none"), ways)
    g.path(g.join("way", ways, strategy), g.replan("go", clerk, tool_choice="none"), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [say("Hm."), say("Gone.")], "way.judge": [label("west", "Best.")]}
    for number, name in enumerate(WAYS):
        turns[f"ways.{name}"] = [call("look", seconds=20.0 + number), say(f"So {name}.")]
    async with runtime(turns, engine=ENGINE) as rt:
        ahead = await rt.run(g, RULES, kv=kv("bidirectional"), cache_salt="a")
    async with runtime(turns, engine=ENGINE) as rt:
        plain = await rt.run(g, RULES, kv=kv("prefix"), cache_salt="b")
    steps = [result.kv.steps[-1] for result in (ahead, plain)]
    branch = rt.format.tokenizer.count(WAYS["north"]) + 100
    assert steps[0].prefilled > 1000
    assert steps[0].computed <= branch + 2 * BLOCK
    assert steps[1].computed > 1000
    assert [step.new for step in steps] == [steps[0].new] * 2, "what was known is not called new where it was not sent"
    assert steps[0].new <= branch + 2 * BLOCK
    assert ahead.messages == plain.messages


async def test_losers_give_their_blocks_back_before_the_winner_goes_on(runtime: Open) -> None:
    graph = forked(akv.first())
    written = script(waits=(30.0, 5.0, 60.0, 60.0), tokens=60)
    async with runtime(written, engine=ENGINE) as rt, rt.start(graph, RULES) as run:
        async for event in run:
            if event.type == "generation_asked" and event.node == "go":
                stats, prompt = await rt.engine.stats(), event.prompt
        result = await run.result()
    assert dict(result.kv.branches)["ways.east"] == "adopted"
    assert stats.get("leases_by_class", {}).get("branch", 0) == 0
    # the winner's blocks, those of the request that has just been sent, and an anchor's
    assert stats["pool_blocks"] - stats["free_blocks"] <= -(-prompt // BLOCK) + 2


async def test_losers_that_decode_are_out_of_the_engine_before_the_winner_goes_on(runtime: Open) -> None:
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [say("Hm."), say("Gone.")]}
    turns |= {f"ways.{name}": [say("and " * (10 if name == "east" else 400))] for name in WAYS}
    async with runtime(turns, engine=ENGINE) as rt, rt.start(forked(akv.first(), tools=()), RULES) as run:
        async for event in run:
            if event.type == "generation_asked" and event.node == "go":
                stats, prompt = await rt.engine.stats(), event.prompt
        result = await run.result()
    assert [status for _, status in result.kv.branches].count("cancelled") == 3
    assert stats["running"] + stats["waiting"] <= 1
    assert stats["pool_blocks"] - stats["free_blocks"] <= -(-prompt // BLOCK) + 2


async def test_admission_counts_a_run_with_its_branches(runtime: Open) -> None:
    async with runtime(script(), engine=ENGINE) as rt, rt.start(forked(akv.all_of(), tools=()), "Go") as run:
        planned = 0
        async for event in run:
            if event.type == "generation_asked" and event.branch:
                planned = max(planned, (await rt.engine.stats()).get("planned_blocks", 0))
        assert planned == 0 or planned * BLOCK >= 8 * 600
