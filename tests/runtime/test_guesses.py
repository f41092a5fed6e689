"""Guesses at results are prefilled and never shown: by memory, by polling, by the user's own hook."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import agentkv as akv
from agentkv.testing import call, say, sim

Open = Callable[..., AbstractAsyncContextManager[akv.Runtime]]
PAGE = "".join(f"Section {n}: parcels of kind {n} leave with van {n % 4} at {n} o'clock.\n" for n in range(24))
OTHER = PAGE[: len(PAGE) // 2] + "From here on all vans are late, and nobody knows by how much they are late.\n" * 8
AHEAD = akv.KVConfig(kv_transfer_mode="bidirectional")
ONE_WAY = akv.KVConfig(kv_transfer_mode="prefix")


def reader(results: list[str], **options: Any) -> Any:
    left = list(results)

    @akv.tool(read_only=True, **options)
    async def read(ctx: akv.Context[None], page: int = 1) -> str:
        """Read a page."""
        await ctx.sleep(4.0)
        return left.pop(0)

    return read


def graph(read: Any, **options: Any) -> akv.Graph[None, str]:
    agent = akv.Agent("clerk", instructions="You read before you answer. " * 6, tools=[read], max_tokens=32)
    found = akv.Graph("desk", output=str)
    first, look = found.plan("first", agent, tool_choice=[read]), found.tool("look")
    second, again = found.replan("second", agent, tool_choice=[read]), found.tool("again")
    answer = found.replan("answer", agent, tool_choice="none")
    found.path(akv.START, first, look, second, again, answer, akv.END)
    return found


def script(*pages: int) -> list[Any]:
    return [*(call("read", page=page) for page in pages), say("Van 1.")]


async def ask(runtime: Open, results: list[str], kv: akv.KVConfig, *pages: int, **options: Any) -> akv.Result[str]:
    async with runtime(script(*pages)) as rt:
        answer: akv.Result[str] = await rt.run(graph(reader(results, **options)), "Which van?", kv=kv)
        return answer


def sources(result: akv.Result[Any]) -> dict[str, tuple[int, int]]:
    return {each.name: (each.prefetched, each.used) for each in result.kv.sources}


async def test_a_repeated_call_with_an_equal_result_is_there_already(runtime: Open) -> None:
    ahead, cold = await ask(runtime, [PAGE, PAGE], AHEAD, 1, 1), await ask(runtime, [PAGE, PAGE], ONE_WAY, 1, 1)
    assert ahead.messages == cold.messages
    assert cold.kv.steps[2].computed > 500
    assert ahead.kv.steps[2].computed <= 2 * ahead.kv.engine.block_size
    prefetched, used = sources(ahead)["memo"]
    assert used >= 500
    assert prefetched <= used


async def test_of_a_wrong_guess_what_is_right_is_used_and_the_rest_is_waste(runtime: Open) -> None:
    ahead, cold = await ask(runtime, [PAGE, OTHER], AHEAD, 1, 1), await ask(runtime, [PAGE, OTHER], ONE_WAY, 1, 1)
    assert ahead.messages == cold.messages
    assert 0.3 < ahead.kv.steps[2].computed / cold.kv.steps[2].computed < 0.7
    prefetched, used = sources(ahead)["memo"]
    assert 0.3 * prefetched < used < 0.7 * prefetched
    assert ahead.kv.totals.wasted >= prefetched - used


async def test_another_call_of_a_tool_is_guessed_to_give_what_it_gave_last(runtime: Open) -> None:
    result = await ask(runtime, [PAGE, PAGE], AHEAD, 1, 2)
    assert "memo" not in sources(result)
    assert sources(result)["poll"][1] >= 500


async def test_a_hook_guesses_before_anything_was_seen(runtime: Open) -> None:
    seen: list[str] = []

    def expected(call: akv.ToolCall) -> str | None:
        seen.append(call.arguments)
        return PAGE if '"page":1' in call.arguments else None

    result = await ask(runtime, [PAGE, OTHER], AHEAD, 1, 2, predict=expected)
    assert seen == ['{"page":1}', '{"page":2}']
    assert result.kv.steps[1].computed <= 2 * result.kv.engine.block_size
    assert sources(result)["hook"][1] >= 500


@pytest.mark.parametrize(("wrong", "said"), [(lambda call: 1 / 0, "raised ZeroDivisionError"), (lambda call: 3, "int")])
async def test_a_hook_that_goes_wrong_is_named(runtime: Open, wrong: Any, said: str) -> None:
    with pytest.raises(akv.ToolError, match=rf"^tool 'read': its predict function .*{said}"):
        await ask(runtime, [PAGE, PAGE], AHEAD, 1, 1, predict=wrong)


@pytest.mark.parametrize("kv", [ONE_WAY, akv.KVConfig(branch_prefetch_limit=0)], ids=["one way", "no prefetches"])
async def test_a_hook_is_not_asked_where_nothing_is_prefilled(runtime: Open, kv: akv.KVConfig) -> None:
    asked: list[akv.ToolCall] = []
    await ask(runtime, [PAGE, PAGE], kv, 1, 1, predict=asked.append)
    assert asked == []


async def test_no_guess_is_made_where_that_is_off_or_a_tool_writes(runtime: Open) -> None:
    off = akv.KVConfig(kv_transfer_mode="bidirectional", predict_results="off")
    assert set(sources(await ask(runtime, [PAGE, PAGE], off, 1, 1))) <= {"certain"}

    @akv.tool(name="read")
    async def write(ctx: akv.Context[None], page: int) -> str:
        """Write a page."""
        await ctx.sleep(4.0)
        return PAGE

    async with runtime(script(1, 1)) as rt:
        assert set(sources(await rt.run(graph(write), "Which?", kv=AHEAD))) <= {"certain"}


async def test_guesses_are_of_the_run_unless_they_are_to_be_of_the_agent_and_never_of_another_tenant(
    runtime: Open,
) -> None:
    def config(scope: Any) -> akv.KVConfig:
        return akv.KVConfig(kv_transfer_mode="bidirectional", predict_results=scope)

    for scope, names in (("run", set()), ("agent", {"memo"})):
        async with runtime(script(1, 2), kv=config(scope)) as rt:
            target = graph(reader([PAGE, "short"] * 3))
            await rt.run(target, "Which van?", cache_salt="a")
            again = await rt.run(target, "Which van leaves first?", cache_salt="a")
            assert names <= set(sources(again))
            assert ("memo" in sources(again)) == bool(names)
            foreign = await rt.run(target, "Which van leaves first?", cache_salt="b")
            assert "memo" not in sources(foreign)


async def test_a_file_keeps_guesses_for_the_next_runtime(tmp_path: Path) -> None:
    path, kv = tmp_path / "memo.json", akv.KVConfig(kv_transfer_mode="bidirectional", predict_results="agent")
    found = []
    for _ in range(2):
        async with akv.Runtime(sim(script(1, 2)), kv=kv, memo_file=path) as rt:
            result = await rt.run(graph(reader([PAGE, "short"])), "Which van?")
            found.append(sources(result).get("memo", (0, 0)))
    assert found[0] == (0, 0)
    assert found[1][1] >= 500
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_memo_file_needs_guesses_that_last() -> None:
    with pytest.raises(akv.SetupError, match="predict_results='agent'"):
        akv.Runtime("sim", memo_file="memo.json")


@pytest.mark.parametrize("seconds", [0.2, 0.45, 0.7, 1.0])
async def test_a_resume_waits_for_no_more_than_one_step_of_a_wrong_guess(runtime: Open, seconds: float) -> None:
    @akv.tool(predict=lambda _: OTHER)
    async def read(ctx: akv.Context[None]) -> str:
        """Read a page."""
        await ctx.sleep(seconds)
        return PAGE

    agent = akv.Agent("clerk", instructions="You read before you answer. " * 6, tools=[read], max_tokens=32)
    desk, step, found = akv.Graph("desk", output=str), 64, {}
    plan, look = desk.plan("plan", agent, tool_choice=[read]), desk.tool("look")
    desk.path(akv.START, plan, look, desk.replan("answer", agent, tool_choice="none"), akv.END)
    for mode in ("bidirectional", "prefix"):
        async with runtime([call("read"), say("Van 1.")]) as rt:
            kv = akv.KVConfig(kv_transfer_mode=mode, prefetch_step=step)
            found[mode] = (await rt.run(desk, "Which van?", kv=kv)).kv
    ahead, plain = found["bidirectional"], found["prefix"]
    assert ahead.totals.aborted <= step
    assert ahead.totals.prefetched + ahead.totals.aborted > 0
    # What a step of 64 tokens takes on the simulated cores, decoding aside.
    assert ahead.ttft_after_tool[0] <= plain.ttft_after_tool[0] + 0.035 + step / 450


async def test_a_run_cannot_have_a_memo_of_another_size_than_all_share() -> None:
    async with akv.Runtime(sim(script(1))) as rt:
        with pytest.raises(akv.SetupError, match=r"kv has memo_bytes=5, .* memo_bytes=4000000: give the run that"):
            rt.start(akv.Agent("a", instructions=""), "?", kv=akv.KVConfig(predict_results="agent", memo_bytes=5))
        for kv in (akv.KVConfig(predict_results="agent"), akv.KVConfig(memo_bytes=5)):
            rt.start(akv.Agent("a", instructions=""), "?", kv=kv)
