"""The table of docs/branches.md."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import anyio

import agentkv as akv
from agentkv.config import TransferMode
from agentkv.kv import PolicySettings
from page_tables.from_tests import from_tests
from page_tables.table import Row, Table
from page_tables.work import Call

__all__ = ("TABLES",)

TOKENS = 250


def join(waits: tuple[float, ...], order: Literal["declared", "arrival"], mode: TransferMode) -> dict[str, Any]:
    """The join of the tests of branches' costs: tokens that it computed, and seconds to its first token."""
    tests, engines = from_tests("runtime.test_branch_costs"), from_tests("runtime.conftest")

    async def run() -> Any:
        engine = engines.managed_sim(tests.script(waits=waits, tokens=TOKENS), PolicySettings(), tests.ENGINE)
        async with akv.Runtime(engine, kv=tests.kv(mode)) as rt:
            return (await rt.run(tests.forked(akv.all_of(order=order)), tests.RULES)).kv

    report = anyio.run(run)
    return {"prompt": report.steps[-1].prompt, "computed": report.steps[-1].computed, "ttft": report.ttft[-1]}


def joined(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tokens computed, and TTFT."""
    (row,) = found
    return [f"{row['computed']:,}", f"{row['ttft']:.2f} s"]


IN_TURN, FIRST_LAST, TOGETHER = (1.0, 21.0, 41.0, 61.0), (61.0, 1.0, 21.0, 41.0), (20.0,) * 4
TABLES = (
    Table(
        name="joins",
        page="docs/branches.md",
        header=("the outputs come", "computed, of 2,707", "TTFT"),
        rows=tuple(
            Row((label,), (Call(join, (waits, order, mode)),), cheap=order == "arrival" or waits == TOGETHER)
            for label, waits, order, mode in (
                ("one after the other, 20 s apart", IN_TURN, "declared", "bidirectional"),
                ("the same, the first in declared order last of all", FIRST_LAST, "declared", "bidirectional"),
                ('the same, with `order="arrival"`', FIRST_LAST, "arrival", "bidirectional"),
                ("all at the same moment", TOGETHER, "declared", "bidirectional"),
                ("in any way, with prefix caching alone", IN_TURN, "declared", "prefix"),
            )
        ),
        cells=joined,
    ),
)
