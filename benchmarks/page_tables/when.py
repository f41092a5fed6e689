"""The tables of docs/when.md."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import anyio

from agentkv.bench import Delay
from agentkv.bench.sweep import Grid, sweep, sweep_lines
from page_tables.cells import after_tool, makespan
from page_tables.table import Row, Table
from page_tables.work import Bench, Call

__all__ = ("TABLES",)

PAGE = "docs/when.md"
ALL = "seed --engine sim:h200 --pool 1.1"
TWENTY = (
    f"{ALL} --chains 20 --prompt-tokens 3000 --shared-tokens 1000 --tool-calls 6"
    " --result-tokens 4000:4000 --tool-seconds 4:4"
)
HUNDRED = f"{ALL} --tool-seconds lognormal:1.2:0.8"
FORTY = "seed --engine sim:h200 --chains 40 --pool 0.5 --tool-calls 4 --tool-seconds lognormal:1.2:0.8"


def parts(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT after a tool of both modes and makespan of the first, as parts of stock's."""
    stock, *ours = modes
    cells = [
        " / ".join(f"{mode['ttft_after_tool_ms'][p] / stock['ttft_after_tool_ms'][p]:.2f}" for p in ("p50", "p95"))
        for mode in ours
    ]
    return [*cells, f"{ours[0]['makespan_s'] / stock['makespan_s']:.2f}"]


def _results(agents: str, result: str, command: str) -> Row:
    return Row((agents, result), tuple(Bench(command, mode) for mode in ("stock", "bidirectional", "auto")))


def sweep_point(prompt: int, calls: int, seconds: str) -> Mapping[str, Any]:
    """A point of the grid, as ``agentkv bench sweep`` has it."""
    grid = Grid(prompt_tokens=[prompt], tool_calls=[calls], tool_seconds=[Delay.parse(seconds)])
    (found,) = anyio.run(partial(sweep, "sim:h200", grid, block=16, progress=lambda _: None))
    return found


def point(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells that ``agentkv bench sweep`` prints behind the point."""
    return [cell.strip() for cell in sweep_lines(found)[-1].strip("|").split("|")][3:]


def held(modes: Sequence[Mapping[str, Any]]) -> list[str]:
    """TTFT after a tool, makespan, tokens recomputed, and blocks that chains lost."""
    (mode,) = modes
    lost = mode["evictions"]["chain"]
    return [after_tool(mode), makespan(mode), f"{mode['recomputed_after_eviction']:,}", f"{lost:,}"]


TABLES = (
    Table(
        name="long-results",
        page=PAGE,
        header=("agents", "a result", "`bidirectional` p50 / p95", "`auto` p50 / p95", "makespan"),
        rows=(
            _results("20", "4,000 tokens, streamed in 20 pieces over 4 s", f"{TWENTY} --result-pieces 20"),
            _results("20", "4,000 tokens at once after 4 s", TWENTY),
            _results("100", "300 tokens, streamed in 10 pieces over 1.2 s (median)", f"{HUNDRED} --result-pieces 10"),
            _results("100", "300 tokens at once", HUNDRED),
        ),
        cells=parts,
    ),
    Table(
        name="sweep",
        page=PAGE,
        header=("prompt", "calls", "tool s", "`stock`, ms", "`bidirectional`", "`auto`"),
        rows=tuple(
            Row((f"{prompt:,}", f"{calls}", seconds), (Call(sweep_point, (prompt, calls, seconds)),))
            for prompt, calls, seconds in product((500, 3000, 8000), (2, 6), ("0.1:0.3", "1:3", "4:8"))
        ),
        cells=point,
    ),
    Table(
        name="pool-ratio",
        page=PAGE,
        header=(
            "`kv_pool_ratio`",
            "TTFT after tool p50 / p95, ms",
            "makespan, s",
            "tokens recomputed",
            "blocks of chains evicted",
        ),
        rows=tuple(
            Row((f"{ratio}",), (Bench(f"{FORTY} --kv-pool-ratio {ratio}", "bidirectional"),), cheap=ratio == 0.5)
            for ratio in (0.5, 0.7, 0.85, 0.95)
        ),
        cells=held,
    ),
)
