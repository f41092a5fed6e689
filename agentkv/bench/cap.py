"""The best fixed limit on concurrent agents, found by trying a few."""

from collections.abc import Awaitable, Callable
from typing import Any

from agentkv.bench.measure import Repetition
from agentkv.bench.workload import Workload
from agentkv.engines import EngineInfo

__all__ = ("best_cap", "candidate_caps")

SHARES = (0.8, 1.0, 1.25)


def candidate_caps(workload: Workload, info: EngineInfo) -> list[int]:
    """Limits worth trying: around as many agents as the pool holds at their full length.

    Where the pool holds all of them, or the engine does not say what it holds, the one limit that limits nothing.
    """
    block, agents = info.block_size, len(workload.plans)
    shared = workload.shared_blocks(block)
    own = (workload.blocks(block) - shared) / agents
    fits = agents if info.pool_blocks is None else (info.pool_blocks - shared) / own
    if fits >= agents:
        return [agents]
    return sorted({min(agents, max(1, round(fits * share))) for share in SHARES})


async def best_cap(
    caps: list[int], attempt: Callable[[int], Awaitable[Repetition]]
) -> tuple[int, list[dict[str, Any]]]:
    """The limit with the least product of p95 TTFT after a tool and makespan, and what was measured for each.

    A lower limit always answers sooner and a higher one keeps the engine busier until it thrashes; the product
    weighs a tenth of the one as much as a tenth of the other.
    """
    if len(caps) == 1:
        return caps[0], []
    trials: list[dict[str, Any]] = []
    for cap in caps:
        found = (await attempt(cap)).to_json()
        p95, makespan = found["ttft_after_tool_ms"]["p95"] or 0.0, found["makespan_s"]
        trials.append({"cap": cap, "ttft_after_tool_p95_ms": p95, "makespan_s": makespan})
    best = min(trials, key=lambda trial: trial["ttft_after_tool_p95_ms"] * trial["makespan_s"])
    return best["cap"], trials
