"""What the two cache modes do to the histories of agents that wait while branches are prefetched."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from agentkv.errors import EngineError

Make = Callable[..., Any]

AGENTS, ROUNDS, BRANCHES = 12, 4, 8
HISTORY, RESULT, BRANCH, OUTPUT = 640, 96, 256, 32
TOOL_SECONDS = 4.0


def text(number: int, turn: int, branch: int, count: int) -> list[int]:
    start = (number * 1000 + turn * 100 + branch) * 1000 + 100_000
    return list(range(start, start + count))


class Share:
    """Tokens of histories that were hits, and those that could have been."""

    def __init__(self) -> None:
        self.cached = self.possible = 0

    def add(self, cached: int, prompt: int, block: int) -> None:
        self.cached += cached
        # The last generated token has no KV yet when its request ends.
        self.possible += (prompt - RESULT - 1) // block * block


async def agent(client: Any, number: int, share: Share, *, prefetch: bool) -> None:
    engine, run = client.engine, f"run{number}"
    await engine.clock.sleep(number * TOOL_SECONDS / AGENTS)
    chain, lease = text(number, 0, 90, count=HISTORY), None
    for turn in range(ROUNDS):
        last = await client.ask(
            chain, OUTPUT, run=run, resume=turn > 0, lease=lease, ttl=60.0, expected_reuse=TOOL_SECONDS
        )
        if turn:
            share.add(last.usage.cached, len(chain), engine.info.block_size)
        lease = last.grant.token
        chain = [*chain, *range(5000, 5000 + OUTPUT)]
        async with anyio.create_task_group() as group:
            for branch in range(BRANCHES if prefetch else 0):
                group.start_soon(guess, client, [*chain, *text(number, turn, branch, count=BRANCH)], run)
            await engine.clock.sleep(TOOL_SECONDS)
        chain = [*chain, *text(number, turn, 99, count=RESULT)]
    if lease is not None:
        await client.call("release", tokens=[lease])


async def guess(client: Any, prompt: list[int], run: str) -> None:
    with suppress(EngineError):  # where there is no room
        await client.ahead(prompt, run=run, ttl=TOOL_SECONDS)


async def hit_share(managed: Make, mode: str, *, prefetch: bool) -> float:
    # The pool holds all histories at their ends, and 12 of the 96 branches of a round.
    client = managed(preset="h200", pool_blocks=520, settings={"prefix_cache_mode": mode})
    share = Share()
    async with client.engine, anyio.create_task_group() as group:
        for number in range(AGENTS):
            group.start_soon(lambda number: agent(client, number, share, prefetch=prefetch), number)
    client.engine.check_integrity()
    return share.cached / share.possible


@pytest.mark.parametrize(
    ("mode", "prefetch", "share"),
    [("independent", False, 1.0), ("independent", True, 0.0), ("hybrid", True, 1.0)],
)
async def test_branch_prefetches_push_out_histories_in_independent_mode_only(
    managed: Make, mode: str, prefetch: bool, share: float
) -> None:
    # As docs/leases.md has them.
    assert round(await hit_share(managed, mode, prefetch=prefetch), 2) == share
