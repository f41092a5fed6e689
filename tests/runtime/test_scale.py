"""Many runs in one process, and work per node that does not grow."""

import sys
from typing import Any

import anyio
import pytest

import agentkv as akv
from agentkv.runtime import run as run_module
from agentkv.testing import call, say, sim


@akv.tool
async def echo(n: int) -> int:
    """The number again."""
    return n


agent = akv.Agent("many", instructions="Echo.", tools=[echo], max_tokens=32)


async def test_a_thousand_runs_at_once() -> None:
    finished = []
    async with akv.Runtime(sim([call("echo", n=1), say("ok")], preset="h200", pool_blocks=60_000)) as rt:

        async def one(n: int) -> None:
            finished.append((await rt.run(agent, f"Run {n}")).output)

        async with anyio.create_task_group() as tasks:
            for n in range(1000):
                tasks.start_soon(one, n)
    assert finished == ["ok"] * 1000


@pytest.mark.parametrize("rounds", [5, 40])
async def test_reducer_calls_per_node_do_not_grow(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    count = 0

    def counting(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return real(*arguments)

    real = run_module.reduce
    monkeypatch.setattr(run_module, "reduce", counting)
    script = [*[call("echo", n=n) for n in range(rounds)], say("ok")]
    async with akv.Runtime(sim(script, max_model_len=16_000)) as rt:
        await rt.run(agent, "Go")
    # asked, finished, call started, call finished in each round; the last asked, finished; start and end
    assert count == 4 * rounds + 4


async def calls_for(branches: int) -> int:
    """Calls of Python functions in a run of so many branches; what is done at every event of one shows in them."""
    g, count = akv.Graph("ways"), 0
    ways = g.fork("ways", [f"Go way {n}." for n in range(branches)], agent=agent, tools=(), limit=branches)
    g.path(akv.START, ways)
    g.path(g.join("all", ways, akv.all_of()), g.replan("go", agent, tool_choice="none"), akv.END)
    turns = {"": [say("Gone.")], **{f"ways.{n}": [say(f"That was {n}.")] for n in range(1, branches + 1)}}

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    limits = akv.Limits(steps=2 * branches)
    async with akv.Runtime(sim(turns, preset="h200", pool_blocks=2000, max_model_len=8000)) as rt:
        await rt.run(g, "Go", limits=limits)
        sys.setprofile(counting)
        try:
            await rt.run(g, "Go again", limits=limits)
        finally:
            sys.setprofile(None)
    return count


async def test_the_work_for_a_branch_does_not_grow_with_their_number() -> None:
    few, more, many = [await calls_for(branches) for branches in (10, 30, 70)]
    assert many - more <= 1.25 * 2 * (more - few)
