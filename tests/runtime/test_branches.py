"""Branches: forks, spawns and joins by each strategy, on the main chain and within each other."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

import agentkv as akv
from agentkv.engines.sim import SimEngine
from agentkv.errors import EngineError, EngineUnavailable
from agentkv.kv import PolicySettings
from agentkv.store import MemoryStore
from agentkv.testing import Script, ScriptedTurn, call, label, say

from .conftest import Open, check_journal

WAYS = {"cheap": "Cheapest fix.", "safe": "Safest fix.", "fast": "Fastest fix."}
LENGTHS = {"cheap": 8, "safe": 16, "fast": 24}
Turns = Mapping[str, Sequence[ScriptedTurn]]


@akv.tool
async def look(ctx: akv.Context[None], seconds: float) -> str:
    """Look, for so many seconds."""
    await ctx.sleep(seconds)
    return f"seen after {seconds:g}"


@akv.tool
async def broken() -> str:
    """Does not work."""
    raise ValueError("no")


fixer = akv.Agent("fixer", instructions="Fix things. " * 40, tools=[look, broken], max_tokens=400)
critic = akv.Agent("critic", instructions="Judge. " * 20)
scout = akv.Agent("scout", instructions="Look around. " * 20, tools=[look])


def forked(strategy: Any, *, last: bool = True, **options: Any) -> akv.Graph[None, str]:
    g = akv.Graph("fixing")
    plan = g.plan("plan", fixer, tool_choice="none")
    ways = g.fork("ways", WAYS, **(options if "body" in options else {"tools": (), **options}))
    best = g.join("best", ways, strategy)
    g.path(akv.START, plan, ways)
    g.path(best, *([g.replan("report", fixer, tool_choice="none")] if last else []), akv.END)
    return g


def script(**more: Sequence[ScriptedTurn]) -> Turns:
    """What a run of ``forked`` says: the cheap way is short, the fast one long."""
    said: dict[str, Sequence[ScriptedTurn]] = {
        f"ways.{name}": [say(f"{name} is the way. " * length)] for name, length in LENGTHS.items()
    }
    return {"": [say("Let me think. " * 20), say("Done.")], **said, **{k.replace("_", "."): v for k, v in more.items()}}


def contents(result: akv.Result[Any]) -> list[str]:
    return [message.content for message in result.messages]


async def finished(
    runtime: Open, store: MemoryStore, graph: Any, turns: Turns, mode: akv.TransferMode = "bidirectional", **more: Any
) -> akv.Result[Any]:
    """The run's result; its journal gives back its state, and all of the script was used."""
    written = akv.testing.Script(turns)
    async with runtime(written, kv=akv.KVConfig(kv_transfer_mode=mode)) as rt, rt.start(graph, "Go", **more) as run:
        result: akv.Result[Any] = await run.result()
        await check_journal(store, run)
    return result


async def test_all_outputs_enter_the_main_chain_in_declared_order(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.all_of()), script())
    assert result.output == "Done."
    joined = contents(result)[2]
    assert joined == "\n\n".join(f"{name}:\n{f'{name} is the way. ' * n}" for name, n in LENGTHS.items())
    assert [m.role for m in result.messages] == ["user", "assistant", "user", "assistant"]
    assert result.kv.branches == tuple((f"ways.{name}", "done") for name in WAYS)


async def test_outputs_may_enter_as_they_arrive(runtime: Open, store: MemoryStore) -> None:
    turns = {**script(), "ways.cheap": [say("cheap is the way. " * 60)]}
    result = await finished(runtime, store, forked(akv.all_of(order="arrival")), turns)
    assert [part.partition(":")[0] for part in contents(result)[2].split("\n\n")] == ["safe", "fast", "cheap"]


async def test_branches_run_side_by_side_on_the_trunk(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.all_of()), script())
    ways = [step for step in result.kv.steps if step.branch]
    assert [step.branch for step in ways] == [f"ways.{name}" for name in WAYS]
    assert len({step.cached for step in ways}) == 1
    assert all(step.computed < 64 < step.cached for step in ways)
    starts = {span.start for span in result.kv.spans if span.kind == "ttft" and span.branch}
    assert len(starts) == 1


async def test_a_judge_names_the_branch_that_goes_on(runtime: Open, store: MemoryStore) -> None:
    for judge in (critic, fixer):
        turns = script(best_judge=[label("safe", "It is safe.")])
        result = await finished(runtime, store, forked(akv.winner(judge=judge)), turns)
        assert contents(result)[2:] == ["Safest fix.", "safe is the way. " * 16, "Done."]
        assert dict(result.kv.branches) == {
            "ways.cheap": "done",
            "ways.safe": "adopted",
            "ways.fast": "done",
            "best.judge": "done",
        }


async def test_a_node_may_judge(runtime: Open, store: MemoryStore) -> None:
    other = akv.Graph("fixing")
    plan, ways = other.plan("plan", fixer, tool_choice="none"), other.fork("ways", WAYS, tools=())
    judge = other.replan("verdict", critic, labels=Literal["cheap", "safe", "fast"], instruction="Name one.")
    other.path(akv.START, plan, ways)
    other.path(other.join("best", ways, akv.winner(judge=judge)), akv.END)
    turns = {**script(best_judge=[label("fast")]), "": [say("Let me think.")]}
    result = await finished(runtime, store, other, turns)
    assert result.output == "fast is the way. " * 24
    assert [step.node for step in result.kv.steps] == ["plan", "plan", "plan", "plan", "verdict"]


async def test_a_function_names_the_branch_that_goes_on(runtime: Open, store: MemoryStore) -> None:
    seen: list[dict[str, str]] = []

    def shortest(outputs: Mapping[str, str]) -> str:
        seen.append(dict(outputs))
        return min(outputs, key=lambda name: len(outputs[name]))

    result = await finished(runtime, store, forked(akv.winner(choose=shortest)), script())
    assert contents(result)[2] == "Cheapest fix."
    assert [list(each) for each in seen] == [list(WAYS)]


async def test_the_first_branch_goes_on_and_the_others_are_cancelled(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.first()), script())
    assert contents(result)[2] == "Cheapest fix."
    assert result.kv.branches == (("ways.cheap", "adopted"), ("ways.safe", "cancelled"), ("ways.fast", "cancelled"))
    report = result.kv.steps[-1]
    assert (report.node, report.computed < 64) == ("report", True)


async def test_an_agent_may_sum_up(runtime: Open, store: MemoryStore) -> None:
    turns = script(best_summary=[say("All three are ways.")])
    result = await finished(runtime, store, forked(akv.summary(critic)), turns)
    assert contents(result)[2:] == ["All three are ways.", "Done."]


async def test_what_a_branch_said_last_may_end_the_run(runtime: Open, store: MemoryStore) -> None:
    turns = {**script(), "": [say("Let me think.")]}
    result = await finished(runtime, store, forked(akv.first(), last=False), turns)
    assert (result.output, result.complete) == ("cheap is the way. " * 8, True)


async def test_k_of_n_suffice(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.all_of(at_least=2)), script())
    assert [part.partition(":")[0] for part in contents(result)[2].split("\n\n")] == ["cheap", "safe"]
    assert result.kv.branches[-1] == ("ways.fast", "cancelled")


def looking(seconds: Mapping[str, float]) -> Turns:
    said = {f"ways.{n}": [call("look", seconds=s), say(f"{n} saw it.")] for n, s in seconds.items()}
    return {**script(), **said}


async def test_branches_loop_with_tools_of_their_own(runtime: Open, store: MemoryStore) -> None:
    turns = looking({"cheap": 5, "safe": 1, "fast": 3})
    result = await finished(runtime, store, forked(akv.winner(choose=max), tools=None), turns)
    assert [message.role for message in result.messages[2:]] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert result.messages[4].content == "seen after 1"
    assert result.messages[3].calls[0].id == "call_0001"


async def test_a_deadline_goes_on_with_what_is_there(runtime: Open, store: MemoryStore) -> None:
    turns = looking({"cheap": 5, "safe": 100, "fast": 10})
    graph = forked(akv.all_of(at_least=2, timeout=40), tools=None)
    result = await finished(runtime, store, graph, turns)
    assert [part.partition(":")[0] for part in contents(result)[2].split("\n\n")] == ["cheap", "fast"]
    assert dict(result.kv.branches)["ways.safe"] == "cancelled"


async def test_a_deadline_without_enough_outputs_ends_the_run(runtime: Open, store: MemoryStore) -> None:
    turns = looking({"cheap": 5, "safe": 100, "fast": 100})
    for strategy, needed in ((akv.all_of(at_least=2, timeout=40), 2), (akv.all_of(timeout=40), 3)):
        with pytest.raises(akv.errors.JoinError, match=f"join 'best': only 1 of {needed} outputs came within 40 s"):
            await finished(runtime, store, forked(strategy, tools=None), turns)


def failing(name: str) -> Turns:
    return {**script(), f"ways.{name}": [call("broken")]}


async def test_a_branch_that_fails_ends_the_run_unless_told_otherwise(runtime: Open, store: MemoryStore) -> None:
    for strategy in (akv.all_of(), akv.first(), akv.winner(choose=min), akv.all_of(on_error="fail")):
        with pytest.raises(akv.ToolError, match="branch 'safe' of 'ways': tool 'broken' raised ValueError"):
            await finished(runtime, store, forked(strategy, tools=None), failing("safe"))


async def test_a_branch_that_fails_may_be_dropped(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.all_of(), tools=None, on_error="drop"), failing("safe"))
    assert [part.partition(":")[0] for part in contents(result)[2].split("\n\n")] == ["cheap", "fast"]
    assert dict(result.kv.branches)["ways.safe"] == "failed"
    [(place, why)] = result.kv.failures
    assert (place, result.kv.to_json()["failures"]) == ("ways.safe", [{"branch": place, "why": why}])
    assert f"\n  ways.safe failed: {why}\n" in result.kv.text()


async def test_the_error_of_a_branch_may_stand_for_its_output(runtime: Open, store: MemoryStore) -> None:
    result = await finished(runtime, store, forked(akv.all_of(on_error="collect"), tools=None), failing("safe"))
    assert "\n\nsafe:\nfailed: tool 'broken' raised ValueError: no;" in contents(result)[2]
    graph = forked(akv.all_of(on_error="collect", order="arrival"), tools=None)
    arrived = await finished(runtime, store, graph, failing("safe"))
    assert contents(arrived)[2].startswith("safe:\nfailed: ")


async def test_a_branch_that_failed_is_no_candidate(runtime: Open, store: MemoryStore) -> None:
    seen: list[list[str]] = []

    def choose(outputs: Mapping[str, str]) -> str:
        seen.append(list(outputs))
        return "fast"

    for errors in ("drop", "collect"):
        graph = forked(akv.winner(choose=choose), tools=None, on_error=errors)
        result = await finished(runtime, store, graph, failing("safe"))
        assert contents(result)[2] == "Fastest fix."
    assert seen == [["cheap", "fast"]] * 2
    turns = {**failing("safe"), "best.judge": [label("safe"), label("cheap")]}
    result = await finished(runtime, store, forked(akv.winner(judge=critic), tools=None, on_error="drop"), turns)
    assert contents(result)[2] == "Cheapest fix."


async def test_a_single_candidate_needs_no_judge(runtime: Open, store: MemoryStore) -> None:
    turns = {**failing("safe"), "ways.cheap": [call("broken")]}
    result = await finished(runtime, store, forked(akv.winner(judge=critic), tools=None, on_error="drop"), turns)
    assert contents(result)[2] == "Fastest fix."


async def test_if_all_branches_fail_there_is_nothing_to_join(runtime: Open, store: MemoryStore) -> None:
    turns = {**script(), **{f"ways.{name}": [call("broken")] for name in WAYS}}
    for strategy, message in (
        (akv.first(), "every branch failed; branch '\\w+' failed: "),
        (akv.winner(judge=critic), "every branch failed"),
        (akv.all_of(), "only 0 of the 1 outputs"),
    ):
        with pytest.raises(akv.errors.JoinError, match=f"join 'best': {message}"):
            await finished(runtime, store, forked(strategy, tools=None, on_error="drop"), turns)


async def test_an_engine_that_is_gone_ends_the_run_whatever_its_branches_may_do() -> None:
    turns = {"": [say("Hm.")], **{f"ways.{name}": [say("and " * 200)] for name in WAYS}}
    graph = forked(akv.all_of(), on_error="drop")
    async with akv.testing.sim(turns) as engine, akv.Runtime(engine) as rt, rt.start(graph, "Go") as run:
        async for event in run:
            if event.type == "text_delta" and event.branch:
                await engine.aclose()
        with pytest.raises(EngineUnavailable):
            await run.result()


class Unheard(SimEngine):
    """An engine that does not answer what its clients say about leases and places they have."""

    async def kv(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if operation in ("renew", "release", "leave"):
            raise EngineError(f"{operation}: no answer")
        return await super().kv(operation, payload)


async def test_hints_that_the_engine_does_not_take_end_no_run() -> None:
    turns = {"": [say("Hm."), say("Done.")], **{f"ways.{way}": [call("look", seconds=3), say(way)] for way in WAYS}}
    engine = Unheard(Script(turns), kv=PolicySettings())
    async with akv.Runtime(engine) as rt:
        assert (await rt.run(forked(akv.first(), tools=None), "Go")).output == "Done."


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda outputs: "dear", "returned 'dear'; there are cheap, safe, fast"),
        (lambda outputs: outputs["dear"], "raised KeyError"),
    ],
)
async def test_a_function_that_does_not_choose_ends_the_run(
    runtime: Open, store: MemoryStore, choose: Any, message: str
) -> None:
    with pytest.raises(akv.errors.NodeError, match=f"join 'best': its choose= function {message}"):
        await finished(runtime, store, forked(akv.winner(choose=choose)), script())
