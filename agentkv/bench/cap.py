"""The best fixed limit on concurrent agents, found by trying a few."""

from collections.abc import Awaitable, Callable
from typing import Any

from agentkv.bench.measure import Repetition
from agentkv.bench.workload import Workload
from agentkv.engines import EngineInfo

__all__ = ("best_cap", "candidate_caps")

SHARES = (0.8, 1.0, 1.25)
STRETCH = 1.5
NEAR = 0.1
JUDGED_BY = ("ttft_after_tool_ms", "ttft_join_ms", "ttft_ms")


def candidate_caps(workload: Workload, info: EngineInfo, agents: int) -> list[int]:
    """Limits to begin with: around as many of ``agents`` as the pool holds at their full length.

    Where the pool holds all of them, or the engine does not say what it holds, the one limit that limits nothing.
    """
    block = info.block_size
    shared = workload.shared_blocks(block)
    own = (workload.blocks(block) - shared) / len(workload.plans)
    fits = agents if info.pool_blocks is None else (info.pool_blocks - shared) / own
    if fits >= agents:
        return [agents]
    return sorted({min(agents, max(1, round(fits * share))) for share in SHARES})


async def best_cap(
    caps: list[int], most: int, attempt: Callable[[int], Awaitable[Repetition]], bound_ms: float | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """The best limit from 1 to ``most`` and what was measured for each that was tried: ``caps``, and beyond them.

    While the largest one tried is the best, one by half larger is tried; while none is within the bound, one by half
    smaller; with one that is, those half way to the next larger one, to a tenth. Best is, with a bound, the most
    tasks a minute within it, or else the least p95 TTFT after a tool. Without one it is the least p95 per task a
    minute: a lower limit always answers sooner and a higher one keeps the engine busier until it thrashes, and a tenth
    of the one weighs as much as a tenth of the other. Where there are no tools, TTFT behind joins, or of all
    generations, stands for that after a tool.
    """
    if caps == [most]:
        return most, []
    trials: list[dict[str, Any]] = []
    queue = list(caps)
    while True:
        trials += [_trial(cap, (await attempt(cap)).to_json()) for cap in queue]
        best = min(trials, key=lambda trial: _cost(trial, bound_ms))
        late = bound_ms is not None and best["ttft_p95_ms"] > bound_ms
        tried = [trial["cap"] for trial in trials]
        queue = _beyond(best["cap"], tried, most, late=late)
        if bound_ms is not None and not late and not queue:
            queue = _between(best["cap"], tried)
        if not queue:
            return best["cap"], trials


def _beyond(best: int, tried: list[int], most: int, *, late: bool) -> list[int]:
    """The next limit to try, if there is a reason to; at most one."""
    found = []
    if late and best == min(tried):
        found.append(max(1, min(best - 1, round(best / STRETCH))))
    elif best == max(tried):
        found.append(min(most, max(best + 1, round(best * STRETCH))))
    return [cap for cap in found if cap not in tried]


def _between(best: int, tried: list[int]) -> list[int]:
    """The limit half way to the next larger one that was tried, unless that is near."""
    larger = min((cap for cap in tried if cap > best), default=best)
    return [(best + larger) // 2] if larger - best > max(1.0, NEAR * best) else []


def _trial(cap: int, found: dict[str, Any]) -> dict[str, Any]:
    # What waits for tools, else for branches, else at all: without any of the first, that is what a limit is for.
    of = next((of for of in JUDGED_BY if found[of]["n"]), JUDGED_BY[-1])
    return {
        "cap": cap,
        "of": of,
        "ttft_p95_ms": found[of]["p95"] or 0.0,
        "tasks_per_minute": found["tasks_per_minute"],
        "makespan_s": found["makespan_s"],
    }


def _cost(trial: dict[str, Any], bound_ms: float | None) -> tuple[float, float]:
    p95, rate = trial["ttft_p95_ms"], trial["tasks_per_minute"]
    if bound_ms is not None:
        return max(p95, bound_ms), -rate
    # No task ended in a window too short for one: the limit is as bad as can be.
    return (p95 / rate, 0.0) if rate else (float("inf"), p95)
