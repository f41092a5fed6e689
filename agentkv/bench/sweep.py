"""Where prefilling ahead pays: modes side by side over a grid of workloads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from attrs import frozen

from agentkv.bench.delay import Delay
from agentkv.bench.lengths import at_least
from agentkv.bench.measure import percentile
from agentkv.bench.modes import find_modes
from agentkv.bench.runner import Benchmark, run_benchmark
from agentkv.bench.seed import SeedShape
from agentkv.counted import counted
from agentkv.errors import SetupError

__all__ = ("SWEPT", "Grid", "sweep", "sweep_lines")

SWEPT = ("stock", "bidirectional", "auto")
# Room for all: what is compared is prefilling ahead, not what a short pool does.
POOL = 1.2


@frozen(kw_only=True)
class Grid:
    """Every combination of first prompts, tool calls and tool times, ``seeds`` times each; results stream in pieces.

    Raises ``SetupError`` where one of them is no workload, or has no tools.
    """

    prompt_tokens: Sequence[int]
    tool_calls: Sequence[int]
    tool_seconds: Sequence[Delay]
    seeds: int = at_least(1, default=3)
    chains: int = at_least(1, default=16)
    result_tokens: int = at_least(1, default=400)
    result_pieces: int = at_least(1, default=8)
    output_tokens: int = at_least(1, default=48)

    def __attrs_post_init__(self) -> None:
        if (fewest := min(self.tool_calls)) < 1:
            raise SetupError(f"tool_calls={fewest} must be at least 1: what is compared are waits after a tool")
        for point in self.shapes():
            self.shape(*point, seed=0)

    def shapes(self) -> Iterable[tuple[int, int, Delay]]:
        """Prompt tokens, tool calls, tool time."""
        return product(self.prompt_tokens, self.tool_calls, self.tool_seconds)

    def shape(self, prompt: int, calls: int, delay: Delay, seed: int) -> SeedShape:
        """The workload of one point."""
        return SeedShape(
            chains=self.chains,
            prompt_tokens=prompt,
            shared_tokens=prompt // 3,
            history_turns=4,
            tool_calls=calls,
            result_tokens=(self.result_tokens, self.result_tokens),
            tool_seconds=delay,
            output_tokens=self.output_tokens,
            start_spread=4.0,
            result_pieces=self.result_pieces,
            seed=seed,
        )


async def sweep(engine: str, grid: Grid, *, block: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row a point: its numbers, and of each mode TTFT after a tool (mean, p50, p95, in ms) and the task's seconds.

    The seeds of a point are taken together: in a batch that is busy one request more or less moves single figures.
    """
    rows = []
    for prompt, calls, delay in grid.shapes():
        results = []
        for seed in range(grid.seeds):
            bench = Benchmark(
                engine=engine,
                workload=grid.shape(prompt, calls, delay, seed),
                modes=find_modes(",".join(SWEPT)),
                pool=POOL,
                block=block,
                floor_samples=0,
                warm_up=0,
            )
            results.append((await run_benchmark(bench, lambda _: None))["modes"])
        row = {"prompt_tokens": prompt, "tool_calls": calls, "tool_seconds": str(delay)}
        rows.append({**row, "modes": {mode: _together([each[mode] for each in results]) for mode in SWEPT}})
        progress(f"{prompt} tokens, {counted(calls, 'call')} of {delay} s")
    return rows


def sweep_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A Markdown table: stock's TTFT after a tool (mean / p95); of the others, parts of its mean, p95 and task time."""
    lines = [
        "| prompt | calls | tool s | `stock`, ms | `bidirectional` | `auto` |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        modes, stock = row["modes"], row["modes"]["stock"]
        cells = [
            " / ".join(f"{modes[mode][figure] / stock[figure]:.2f}" for figure in ("mean", "p95", "task_s"))
            for mode in SWEPT[1:]
        ]
        own = f"{stock['mean']:.0f} / {stock['p95']:.0f}"
        point = f"{row['prompt_tokens']:,} | {row['tool_calls']} | {row['tool_seconds']}"
        lines.append(f"| {point} | {own} | {' | '.join(cells)} |")
    return lines


def _together(modes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    # Equally many resumes a seed, so that equally many quantiles stand for each.
    times = [value for mode in modes for value in mode["quantiles_after_tool_ms"]]
    return {
        "mean": round(sum(times) / len(times), 3),
        "p50": round(percentile(times, 50), 3),
        "p95": round(percentile(times, 95), 3),
        "task_s": round(sum(mode["task_s"]["p50"] for mode in modes) / len(modes), 4),
        "prefetches": sum(mode["prefetches"] for mode in modes),
    }
