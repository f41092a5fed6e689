"""Many runs in one process, and work per node that does not grow."""

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
