"""The figures of one repetition, from its turns and counters."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from agentkv.bench.reconcile import reconcile
from agentkv.bench.series import Series
from agentkv.bench.snapshot import Snapshot, difference, moved
from agentkv.bench.steady import Steady
from agentkv.bench.step_log import StepRow
from agentkv.bench.turn import Source, Task, Turn

__all__ = ("Repetition", "figures", "percentile")

PERCENTS = (50, 95, 99)
LEASE_CLASSES = ("speculative", "branch", "chain", "anchor")
TIMELINE_TASKS = 40


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between closest ranks, as ``numpy.percentile`` does. ``values`` must not be empty."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def figures(seconds: Iterable[float], *, scale: float = 1.0) -> dict[str, Any]:
    """p50, p95, p99 and n of ``seconds`` times ``scale``; None for each where there is none."""
    values = [value * scale for value in seconds]
    found: dict[str, Any] = {f"p{p}": round(percentile(values, p), 4) if values else None for p in PERCENTS}
    return {**found, "n": len(values)}


@frozen(kw_only=True)
class Repetition:
    """One mode, once: what happened from ``before`` to ``after``, the whole of it or the window of a steady load.

    ``turns`` became ready in that time, ``tasks`` ended in it. ``cut`` became ready in it and were not done when the
    load was taken away: source, seconds to the first token, and whether that had not come (``censored``, the seconds
    are a lower bound). ``lived`` has all turns by agent, for the timeline, ``steps`` the engine's
    steps; ``began_at`` is the timeline's zero, and that of ``series`` (the pool) and ``tier`` (host memory).
    """

    turns: tuple[Turn, ...]
    tasks: tuple[Task, ...]
    lived: Mapping[int, tuple[Turn, ...]]
    steps: Sequence[StepRow]
    cut: tuple[tuple[Source, float, bool], ...]
    before: Snapshot
    after: Snapshot
    began_at: float
    series: Series
    tier: Series
    evicted: Mapping[str, Any]
    in_force: Mapping[str, str]
    steady: Steady | None

    @property
    def seconds(self) -> float:
        """How long what counts took."""
        return self.after.at - self.before.at

    @property
    def resumes(self) -> list[Turn]:
        """The turns that a tool's result made possible."""
        return [turn for turn in self.turns if turn.source == "tool"]

    def ttft_s(self, *sources: Source) -> list[float]:
        """Times to the first token of the turns with one of ``sources`` (none: of all), those cut off included."""
        found = [turn.ttft_s for turn in self.turns if not sources or turn.source in sources]
        return [*found, *(waited for source, waited, _ in self.cut if not sources or source in sources)]

    def to_json(self) -> dict[str, Any]:
        """The figures of this repetition as plain values; milliseconds, seconds, tokens."""
        tokens = self._tokens()
        return {
            "ttft_ms": figures(self.ttft_s(), scale=1e3),
            "ttft_first_ms": figures(self.ttft_s("start"), scale=1e3),
            "ttft_after_tool_ms": figures(self.ttft_s("tool"), scale=1e3),
            "ttft_branch_ms": figures(self.ttft_s("branch"), scale=1e3),
            "ttft_join_ms": figures(self.ttft_s("join"), scale=1e3),
            "censored": {"first": self._censored("start"), "after_tool": self._censored("tool")},
            "task_s": figures(task.seconds for task in self.tasks),
            "held_s": figures(turn.held_s for turn in self.turns if turn.number == 0),
            "makespan_s": round(self.seconds, 4) if self.steady is None else None,
            "window_s": round(self.seconds, 4) if self.steady is not None else None,
            "tasks_per_minute": round(60 * len(self.tasks) / self.seconds, 4),
            "tokens": tokens,
            "tokens_by_source": self._tokens_by_source(),
            "computed_total": tokens["computed"] + tokens["prefetched"] + tokens["aborted"] + tokens["upkeep"],
            "reduction": _reduction(tokens),
            "hit_after_tool": _hit(self.resumes),
            "prefetches": self.after.prefetches - self.before.prefetches,
            "evictions": self._evictions(),
            "policy_records": self._policy("records"),
            "tier": moved(*(at.counters["policy"].get("tier_totals", {}) for at in (self.before, self.after))),
            "recomputed_after_eviction": self.after.recomputed - self.before.recomputed,
            "preemptions": self._count("preemptions"),
            "peak_pool": self.series.peak,
            "breakdown_ms": self._breakdown(),
            "inter_token_ms": figures((t.inter_token_s for t in self.turns if t.generated > 1), scale=1e3),
            "engine_account": self._account(),
        }

    def reconciliation(self) -> dict[str, Any]:
        """The clients' books against the engine's; see ``reconcile``."""
        return reconcile(self.before, self.after, whole=self.steady is None)

    def rounds(self) -> list[dict[str, Any]]:
        """TTFT and hit share by number of the turn, so that runs of unequal length can be compared."""
        numbers = sorted({turn.number for turn in self.turns})
        by_number = {number: [turn for turn in self.turns if turn.number == number] for number in numbers}
        return [
            {
                "round": number,
                "source": turns[0].source,
                "ttft_ms": figures((t.ttft_s for t in turns), scale=1e3),
                "hit": _hit(turns),
            }
            for number, turns in by_number.items()
        ]

    def timeline(self) -> list[dict[str, Any]]:
        """At most 40 agents, evenly chosen: when each generation could be asked for, had its first token, was done."""
        agents = sorted(self.lived)
        step = max(1, -(-len(agents) // TIMELINE_TASKS))
        return [{"agent": agent, "turns": [self._moments(t) for t in self.lived[agent]]} for agent in agents[::step]]

    def _moments(self, turn: Turn) -> list[float]:
        return [round(at - self.began_at, 3) for at in (turn.ready_at, turn.first_at, turn.done_at)]

    def _censored(self, source: Source) -> int:
        return sum(censored for each, _, censored in self.cut if each == source)

    def _tokens(self) -> dict[str, int]:
        names = (
            "prompt",
            "computed",
            "cached",
            "generated",
            "prefetched",
            "prefetched_used",
            "aborted",
            "wasted",
            "upkeep",
        )
        # A prefetch used behind the window's end was not wasted by being sent before it.
        return {name: max(0, getattr(self.after.totals, name) - getattr(self.before.totals, name)) for name in names}

    def _tokens_by_source(self) -> dict[str, dict[str, int]]:
        """Of the prompts of each source: their tokens, and those computed between ask and first token."""
        found: dict[str, dict[str, int]] = {}
        for turn in self.turns:
            sums = found.setdefault(turn.source, {"prompt": 0, "computed": 0})
            sums["prompt"] += turn.prompt
            sums["computed"] += turn.prompt - turn.cached
        return found

    def _breakdown(self) -> dict[str, Any]:
        """Where the time of resumes and joins went, by part; a part that the engine does not tell is empty."""
        turns = [turn for turn in self.turns if turn.source in ("tool", "join")]
        parts: dict[str, list[float | None]] = {
            "client": [turn.client_s for turn in turns],
            "queue": [turn.queue_s for turn in turns],
            "prefill": [turn.prefill_s for turn in turns],
            "delivery": [turn.delivery_s for turn in turns],
        }
        return {name: figures((v for v in values if v is not None), scale=1e3) for name, values in parts.items()}

    def _count(self, name: str) -> int | None:
        before, after = self.before.counters, self.after.counters
        return after[name] - before[name] if name in after else None

    def _evictions(self) -> dict[str, int | None]:
        """Blocks evicted, by class of the lease that held them; None where the engine does not tell."""
        leased = {
            key.partition(":")[2]: blocks
            for key, blocks in self._policy("record_blocks").items()
            if key.startswith("lease.evict:")
        }
        return {"unleased": self._count("evictions"), **dict.fromkeys(LEASE_CLASSES, 0), **leased}

    def _policy(self, name: str) -> dict[str, int]:
        """What the engine's KV policy counted under ``name`` meanwhile; empty where it has none."""
        return difference(self.before.counters["policy"].get(name, {}), self.after.counters["policy"].get(name, {}))

    def _account(self) -> dict[str, int]:
        """The engine's own count of prompt tokens by source, prefetches included; empty where it has none."""
        return difference(self.before.counters.get("engine", {}), self.after.counters.get("engine", {}))


def _reduction(tokens: Mapping[str, int]) -> dict[str, float | None]:
    """See "prefill token reduction ratio": on the critical path, and of everything that was computed."""
    if not tokens["prompt"]:
        return {"critical": None, "total": None}
    spent = tokens["computed"] + tokens["prefetched"] + tokens["aborted"] + tokens["upkeep"]
    return {
        "critical": round(1 - tokens["computed"] / tokens["prompt"], 6),
        "total": round(1 - spent / tokens["prompt"], 6),
    }


def _hit(turns: Sequence[Turn]) -> float | None:
    prompt = sum(turn.prompt for turn in turns)
    return round(sum(turn.cached for turn in turns) / prompt, 6) if prompt else None
