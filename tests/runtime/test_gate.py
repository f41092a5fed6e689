"""The first of several generations that need the same KV computes it; the others wait for its first token."""

from typing import Any

import anyio
import pytest

from agentkv.report import Ledger, Residency
from agentkv.runtime.gate import Gate

TRUNK = [b"a", b"b", b"c"]


def gate() -> tuple[Gate, Ledger]:
    ledger = Ledger("run", Residency(32), None)
    return Gate(ledger, 32), ledger


@pytest.mark.parametrize("ends", ["arrived", "left"])
async def test_the_others_wait_for_the_first_token_or_the_end(ends: str) -> None:
    guard, ledger = gate()
    entered: list[str] = []
    go_on = anyio.Event()

    async def lead() -> None:
        async with guard.enter([*TRUNK, b"x"]):
            entered.append("lead")
            await go_on.wait()
            if ends == "arrived":
                guard.arrived([*TRUNK, b"x"])
                await anyio.lowlevel.checkpoint()

    async def follow(name: str) -> None:
        async with guard.enter([*TRUNK, name.encode()]):
            entered.append(name)
            if ends == "left":
                guard.arrived([*TRUNK, name.encode()])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(follow, "one")
        tasks.start_soon(follow, "two")
        await anyio.wait_all_tasks_blocked()
        assert entered == ["lead"]
        go_on.set()
    assert sorted(entered) == ["lead", "one", "two"]
    assert ledger.resident(TRUNK) == 96


async def test_what_has_nothing_in_common_does_not_wait() -> None:
    guard, _ = gate()

    async def other(done: Any) -> None:
        async with guard.enter([b"y"]):
            done.append("other")

    done: list[str] = []
    async with guard.enter(TRUNK):
        await other(done)
    assert done == ["other"]


async def test_what_is_resident_already_holds_nobody_up() -> None:
    guard, ledger = gate()
    ledger.arrived(TRUNK)
    async with guard.enter([*TRUNK, b"x"]):
        with anyio.fail_after(1):
            async with guard.enter([*TRUNK, b"y"]):
                pass
