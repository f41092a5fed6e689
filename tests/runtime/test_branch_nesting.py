"""Branches within branches, in loops, listed at run time, with limits; sub-agents; what is prefilled for them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

import agentkv as akv
from agentkv.store import MemoryStore
from agentkv.testing import ScriptedTurn, call, label, say

from .conftest import Open, check_journal
from .test_branches import WAYS, contents, critic, finished, fixer, forked, look, looking, scout, script

Turns = Mapping[str, Sequence[ScriptedTurn]]


lister = akv.Agent("lister", instructions="List topics.", output=list[str])


def research(**options: Any) -> akv.Graph[None, str]:
    g = akv.Graph("research")
    plan = g.plan("plan", lister)
    notes = g.spawn("notes", scout, **{"over": lambda topics: topics, "prompt": "Look at {}.".format, **options})
    report = g.join("report", notes, akv.all_of())
    g.path(akv.START, plan, notes)
    g.path(report, g.replan("write", fixer, tool_choice="none"), akv.END)
    return g


NOTES: Turns = {
    "": [say('["tides", "rain"]'), say("Written.")],
    "notes.tides": [call("look", seconds=3), say("High.")],
    "notes.rain": [say("Much.")],
}


async def test_sub_agents_are_listed_at_run_time(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, research(), NOTES)
    assert contents(result)[2] == "tides:\nHigh.\n\nrain:\nMuch."
    assert {step.agent for step in result.kv.steps if step.branch} == {"scout"}
    # A sub-agent's conversation begins with its own prompt: nothing of the main one is in it.
    first = next(step for step in result.kv.steps if step.branch == "notes.rain")
    assert first.prompt < 400


async def test_branches_of_a_fork_may_be_listed_at_run_time(runtime: Open, store: MemoryStore) -> None:
    g = akv.Graph("fixing")
    plan = g.plan("plan", lister)
    ways = g.fork("ways", over=lambda topics: topics, prompt="Try {}.".format, agent=fixer, tools=())
    g.path(akv.START, plan, ways)
    g.path(g.join("best", ways, akv.winner(judge=critic)), akv.END)
    turns: Turns = {
        "": [say('["tides", "rain"]')],
        "ways.1": [say("One.")],
        "ways.2": [say("Two.")],
        "best.judge": [label("2")],
    }
    result = await finished(runtime, store, g, turns)
    assert contents(result)[2:] == ["Try rain.", "Two."]


@pytest.mark.parametrize(
    ("over", "error", "message"),
    [
        (lambda topics: [], akv.errors.JoinError, "node 'notes' has no branches"),
        (
            lambda topics: topics * 9,
            akv.LimitExceeded,
            "node 'notes': more branches were listed than limit=16; list fewer, or raise it",
        ),
        (lambda topics: 1 / 0, akv.errors.NodeError, "node 'notes': its over= function raised ZeroDivision"),
        (lambda topics: 7, akv.errors.NodeError, "node 'notes': its over= function returned a int"),
    ],
)
async def test_a_bad_list_ends_the_run(
    runtime: Open, store: MemoryStore, over: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await finished(runtime, store, research(over=over), NOTES)


async def test_a_prompt_that_is_no_text_ends_the_run(runtime: Open, store: MemoryStore) -> None:
    with pytest.raises(akv.errors.NodeError, match="node 'notes': its prompt= function returned 5"):
        await finished(runtime, store, research(prompt=len), NOTES)


async def test_forks_within_forks(runtime: Open, store: MemoryStore) -> None:
    inner = akv.Graph("inner")
    start = inner.plan("draft", fixer, tool_choice="none")
    halves = inner.fork("halves", ["Left.", "Right."], tools=())
    inner.path(akv.START, start, halves)
    inner.path(inner.join("both", halves, akv.all_of()), inner.replan("sum", fixer, tool_choice="none"), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [say("Hm."), say("Done.")], "best.judge": [label("safe")]}
    for way in WAYS:
        turns[f"ways.{way}"] = [say(f"{way} draft."), say(f"{way} sum.")]
        turns |= {f"ways.{way}>halves.{n}": [say(f"{way} half {n}.")] for n in "12"}
    graph = forked(akv.winner(judge=critic), body=inner)
    result = await finished(runtime, store, graph, turns)
    assert contents(result)[2:] == [
        "Safest fix.",
        "safe draft.",
        "1:\nsafe half 1.\n\n2:\nsafe half 2.",
        "safe sum.",
        "Done.",
    ]
    assert len(result.kv.branches) == 3 * 3 + 1


async def test_the_winner_of_a_fork_within_a_branch_that_wins(runtime: Open, store: MemoryStore) -> None:
    inner = akv.Graph("inner")
    start = inner.plan("draft", fixer, tool_choice="none")
    halves = inner.fork("halves", ["Left.", "Right."], tools=())
    inner.path(akv.START, start, halves)
    inner.path(inner.join("half", halves, akv.winner(choose=max)), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [say("Hm."), say("Done.")]}
    for way in WAYS:
        turns[f"ways.{way}"] = [say(f"{way} draft.")]
        turns |= {f"ways.{way}>halves.{n}": [say(f"{way} half {n}. " * 20)] for n in "12"}
    result = await finished(runtime, store, forked(akv.winner(choose=max), body=inner), turns)
    assert contents(result)[2:] == ["Safest fix.", "safe draft.", "Right.", "safe half 2. " * 20, "Done."]
    assert result.kv.steps[-1].computed < 64


async def test_a_branch_may_spawn(runtime: Open, store: MemoryStore) -> None:
    inner = research(over=["tides", "rain"])
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [say("Hm."), say("Done.")]}
    for way in WAYS:
        turns[f"ways.{way}"] = [say("[]"), say(f"{way} written.")]
        turns |= {f"ways.{way}>notes.{topic}": [say(f"{topic}!")] for topic in ("tides", "rain")}
    result = await finished(runtime, store, forked(akv.all_of(), body=inner, agent=fixer), turns)
    assert contents(result)[2] == "\n\n".join(f"{way}:\n{way} written." for way in WAYS)


async def test_a_fork_in_a_loop(runtime: Open, store: MemoryStore) -> None:
    g = akv.Graph("loop")
    plan, ways = g.plan("plan", fixer, tool_choice="none"), g.fork("ways", WAYS, tools=())
    again = g.replan("again", fixer, labels=Literal["again", "answer"], tool_choice="none")
    g.path(akv.START, plan, ways)
    g.path(g.join("best", ways, akv.first()), again)
    g.route(again, {"again": ways, "answer": akv.END})
    turns: dict[str, Sequence[ScriptedTurn]] = {
        "": [say("Hm."), label("again"), label("again"), label("answer", "Enough.")],
    }
    for place in ("ways", "ways#2", "ways#3"):
        turns |= {f"{place}.{way}": [say(f"{place} {way}. " * (n + 1) * 9)] for n, way in enumerate(WAYS)}
    result = await finished(runtime, store, g, turns)
    assert result.output == "Enough."
    assert [place for place, status in result.kv.branches if status == "adopted"] == [
        "ways.cheap",
        "ways#2.cheap",
        "ways#3.cheap",
    ]


async def test_limits_count_over_branches(runtime: Open, store: MemoryStore) -> None:
    with pytest.raises(akv.LimitExceeded, match=r"Limits\.steps=4 reached"):
        await finished(runtime, store, forked(akv.all_of()), script(), limits=akv.Limits(steps=4))
    turns = looking({"cheap": 1, "safe": 1, "fast": 1})
    graph = forked(akv.all_of(), tools=None, on_error="drop")
    with pytest.raises(akv.LimitExceeded, match=r"Limits\.tool_calls=2 reached"):
        await finished(runtime, store, graph, turns, limits=akv.Limits(tool_calls=2))
    with pytest.raises(akv.LimitExceeded, match=r"Limits\.tokens=250 reached"):
        await finished(runtime, store, forked(akv.all_of()), script(), limits=akv.Limits(tokens=250))
    result = await finished(runtime, store, forked(akv.all_of()), script(), limits=akv.Limits(steps=5))
    assert result.output == "Done."


async def test_limits_of_a_branch_are_its_own(runtime: Open, store: MemoryStore) -> None:
    turns = looking({"cheap": 1, "safe": 50, "fast": 1})
    limits = akv.Limits(seconds=40)
    graph = forked(akv.all_of(on_error="collect"), tools=None, limits=limits)
    result = await finished(runtime, store, graph, turns)
    assert "safe:\nfailed: Limits.seconds=40 reached\n\nfast:" in contents(result)[2], "the model hears of no remedy"
    said = r"branch 'safe' of 'ways': Limits.seconds=40 reached; 'ways' may have larger limits=akv.Limits\(...\)$"
    with pytest.raises(akv.LimitExceeded, match=said):
        await finished(runtime, store, forked(akv.all_of(), tools=None, limits=limits), turns)
    turns = {**looking({"cheap": 1, "safe": 1, "fast": 1}), "ways.safe": [say("At once.")]}
    graph = forked(akv.all_of(), tools=None, limits=akv.Limits(steps=1), on_error="drop")
    result = await finished(runtime, store, graph, turns)
    assert contents(result)[2] == "safe:\nAt once."


async def test_sub_agents_that_are_sure_to_come_are_prefilled_while_the_trunk_decodes(
    runtime: Open, store: MemoryStore
) -> None:
    g = akv.Graph("research")
    plan = g.plan("plan", fixer, tool_choice="none")
    notes = g.spawn("notes", scout, over=["tides", "rain"], prompt=lambda topic: f"Look at {topic}. " * 20)
    g.path(akv.START, plan, notes)
    g.path(g.join("report", notes, akv.all_of()), g.replan("write", fixer, tool_choice="none"), akv.END)
    turns: Turns = {
        "": [say("Let me think. " * 40), say("Written.")],
        "notes.tides": [say("High.")],
        "notes.rain": [say("Much.")],
    }
    ahead = await finished(runtime, store, g, turns)
    plain = await finished(runtime, store, g, turns, mode="prefix")
    for result, least in ((ahead, 200), (plain, 0)):
        firsts = [step for step in result.kv.steps if step.branch]
        assert sum(step.prefilled for step in firsts) >= least
        assert all(step.cached >= step.predicted for step in firsts)
    assert sum(s.computed for s in ahead.kv.steps if s.branch) < sum(s.computed for s in plain.kv.steps if s.branch) / 3
    assert ahead.messages == plain.messages


async def test_prefetches_of_all_branches_are_bounded(runtime: Open) -> None:
    g = akv.Graph("research")
    plan = g.plan("plan", fixer, tool_choice="none")
    topics = [f"topic {n}" for n in range(12)]
    notes = g.spawn("notes", scout, over=topics, prompt=lambda topic: f"Look at {topic}. " * 20)
    g.path(akv.START, plan, notes)
    g.path(g.join("report", notes, akv.all_of()), akv.END)

    def turns(prompt: str, tag: str) -> Any:
        return say("Let me think. " * 60 if "/plan/" in tag and ">" not in tag else "Seen.")

    kv = akv.KVConfig(kv_transfer_mode="bidirectional", branch_prefetch_limit=3)
    async with runtime(akv.testing.Script(turns), kv=kv) as rt, rt.start(g, "Go") as run:
        events = [event async for event in run if event.type == "prefetched"]
    assert {event.branch for event in events}
    for event in events:
        at_once = [e for e in events if e.sent_at <= event.sent_at < e.at]
        assert len(at_once) <= 3


async def test_a_branch_tells_the_tool_loop_nothing_of_the_others(runtime: Open, store: MemoryStore) -> None:
    g = akv.Graph("pair", deps=None.__class__)
    plan, act = g.plan("plan", fixer, tool_choice=look), g.tool("act")
    ways = g.fork("ways", WAYS)
    g.path(akv.START, plan, act, ways)
    g.path(g.join("best", ways, akv.winner(choose=max)), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {"": [call("look", seconds=1)]}
    turns |= {f"ways.{way}": [call("look", seconds=2), say(f"{way}!")] for way in WAYS}
    result = await finished(runtime, store, g, turns)
    assert [c.id for m in result.messages for c in m.calls] == ["call_0001", "call_0002"]
    assert result.output == "safe!"


async def test_a_join_may_go_on_while_its_branches_begin(runtime: Open) -> None:
    """The first branch fails before it is asked, its error is an output, one output is enough: on to the next fork."""
    g = akv.Graph("twice")
    one = g.fork("one", {"long": "word " * 3000, "short": "Be brief."}, agent=fixer, tools=(), on_error="collect")
    two = g.fork("two", ["Left.", "Right."], tools=())
    g.path(akv.START, one)
    g.path(g.join("some", one, akv.all_of(at_least=1)), two)
    g.path(g.join("both", two, akv.all_of()), akv.END)
    turns: Turns = {"two.1": [say("L.")], "two.2": [say("R.")]}
    asked = akv.testing.Recording(akv.testing.Script(turns))
    async with runtime(asked, engine={"pool_blocks": 80, "max_model_len": 2400}) as rt:
        result = await rt.run(g, "Go")
    assert {request.tag.split("/")[1].partition(">")[0] for request in asked.requests} == {"two.1", "two.2"}
    assert result.output == "1:\nL.\n\n2:\nR."
    assert dict(result.kv.branches) == {
        "one.long": "failed",
        "one.short": "cancelled",
        "two.1": "done",
        "two.2": "done",
    }


async def test_events_say_where_they_happened(runtime: Open, store: MemoryStore) -> None:
    turns = looking({"cheap": 1, "safe": 2, "fast": 3})
    graph = forked(akv.first(), tools=None)
    async with runtime(akv.testing.Script(turns)) as rt, rt.start(graph, "Go") as run:
        events = [event async for event in run]
        await check_journal(store, run)
    called = [event for event in events if event.type == "call_finished"]
    assert [event.branch[0].label for event in called] == ["cheap"]
    texts: dict[tuple[Any, ...], str] = {}
    for event in events:
        if event.type == "text_delta":
            texts[event.branch] = texts.get(event.branch, "") + event.text
    assert "cheap saw it." in texts[called[0].branch]
