"""Which waits of a run are called waits after tools: those of who comes next behind the results, branches too."""

from collections.abc import Sequence

import agentkv as akv
from agentkv.testing import ScriptedTurn, call, label, say

from .conftest import Open


@akv.tool
async def look(ctx: akv.Context[None]) -> str:
    """Look."""
    await ctx.sleep(1.0)
    return "seen"


guide = akv.Agent("guide", instructions="You know the way.", tools=[look])


def branching_at_once() -> akv.Graph[None, str]:
    """A branch that begins by branching, and whose own first generation comes behind that."""
    g = akv.Graph("inner")
    halves = g.fork("halves", ["Left.", "Right."], agent=guide, tools=())
    g.path(akv.START, halves)
    g.path(g.join("both", halves, akv.all_of()), g.replan("sum", guide, tool_choice="none"), akv.END)
    return g


async def test_waits_behind_a_tool_are_those_of_whoever_comes_next(runtime: Open) -> None:
    g = akv.Graph("ways")
    ways = g.fork("ways", {"north": "Go north.", "south": "Go south."}, agent=guide)
    g.path(akv.START, g.plan("plan", guide, tool_choice="required"), g.tool("act"), ways)
    again = g.fork("again", ["Once.", "Twice."], body=branching_at_once())
    g.path(g.join("way", ways, akv.winner(judge=guide)), again)
    g.path(g.join("all", again, akv.all_of()), g.replan("go", guide, tool_choice="none"), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {
        "": [call("look"), say("Gone.")],
        "ways.north": [call("look"), say("North.")],
        "ways.south": [say("South.")],
        "way.judge": [label("north")],
        **{f"again.{n}": [say("Both.")] for n in "12"},
        **{f"again.{n}>halves.{half}": [say("Half.")] for n in "12" for half in "12"},
    }
    async with runtime(turns) as rt:
        report = (await rt.run(g, "Where to?")).kv
    waits = [(span.label, span.after_tool) for span in report.spans if span.kind == "ttft"]
    assert sorted(name for name, after in waits if after) == ["ways.north>plan", "ways.north>replan", "ways.south>plan"]
    assert len(waits) == 12


async def test_branches_that_branch_at_once_wait_for_the_tool_before_them(runtime: Open) -> None:
    g = akv.Graph("ways")
    ways = g.fork("ways", ["Here.", "There."], body=branching_at_once())
    g.path(akv.START, g.plan("plan", guide, tool_choice="required"), g.tool("act"), ways)
    g.path(g.join("way", ways, akv.first()), akv.END)
    turns: dict[str, Sequence[ScriptedTurn]] = {
        "": [call("look")],
        **{f"ways.{n}": [say("Both.")] for n in "12"},
        **{f"ways.{n}>halves.{half}": [say("Half.")] for n in "12" for half in "12"},
    }
    async with runtime(turns) as rt:
        report = (await rt.run(g, "Where to?")).kv
    after = {span.label for span in report.spans if span.kind == "ttft" and span.after_tool}
    assert after == {f"ways.{n}>halves.{half}>plan" for n in "12" for half in "12"}
    assert len(report.ttft_after_tool) == 4
