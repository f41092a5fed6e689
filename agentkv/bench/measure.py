"""The figures of one repetition, from its turns and ledgers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from agentkv.bench.stage import Stage
from agentkv.bench.turn import Turn
from agentkv.report import Totals

__all__ = ("Repetition", "figures", "percentile")

PERCENTS = (50, 95, 99)
# Capabilities that a mode may ask for.
MANAGED = ("leases", "order", "admission")
LEASE_CLASSES = ("speculative", "branch", "chain", "anchor")


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
    """One mode, once. ``before`` and ``after`` are the engine's counters, ``occupancy`` (second, share) pairs."""

    turns: tuple[Turn, ...]
    task_s: tuple[float, ...]
    makespan_s: float
    totals: tuple[Totals, ...]
    recomputed: int
    prefetches: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    occupancy: tuple[tuple[float, float], ...]
    in_force: Mapping[str, str]

    @classmethod
    def of(
        cls,
        stage: Stage,
        makespan_s: float,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        occupancy: Iterable[tuple[float, float]],
    ) -> "Repetition":
        """Everything that ``stage`` has seen, now that its agents are done."""
        return cls(
            turns=tuple(stage.turns),
            task_s=tuple(stage.task_s),
            makespan_s=makespan_s,
            totals=tuple(ledger.totals() for ledger in stage.ledgers),
            recomputed=sum(step.evicted for ledger in stage.ledgers for step in ledger.steps),
            prefetches=stage.prefetches,
            before=before,
            after=after,
            occupancy=tuple(occupancy),
            in_force={name: state for name, state in stage.engine.info.capabilities.items() if name in MANAGED},
        )

    @property
    def resumes(self) -> list[Turn]:
        """The turns that a tool's result made possible."""
        return [turn for turn in self.turns if turn.source == "tool"]

    def to_json(self) -> dict[str, Any]:
        """The figures of this repetition as plain values; milliseconds, seconds, tokens."""
        tokens = self._tokens()
        return {
            "ttft_ms": figures((turn.ttft_s for turn in self.turns), scale=1e3),
            "ttft_first_ms": figures((turn.ttft_s for turn in self.turns if turn.number == 0), scale=1e3),
            "ttft_after_tool_ms": figures((turn.ttft_s for turn in self.resumes), scale=1e3),
            "task_s": figures(self.task_s),
            "held_s": figures(turn.held_s for turn in self.turns if turn.number == 0),
            "makespan_s": round(self.makespan_s, 4),
            "tasks_per_minute": round(60 * len(self.task_s) / self.makespan_s, 4),
            "tokens": tokens,
            "reduction": _reduction(tokens),
            "hit_after_tool": _hit(self.resumes),
            "prefetches": self.prefetches,
            "evictions": self._evictions(),
            "policy_records": self._policy("records"),
            "recomputed_after_eviction": self.recomputed,
            "preemptions": self._count("preemptions"),
            "peak_pool": max((share for _, share in self.occupancy), default=None),
            "breakdown_ms": self._breakdown(),
            "inter_token_ms": figures((t.inter_token_s for t in self.turns if t.generated > 1), scale=1e3),
            "engine_account": self._account(),
        }

    def _tokens(self) -> dict[str, int]:
        names = ("prompt", "computed", "cached", "generated", "prefetched", "prefetched_used", "aborted", "wasted")
        return {name: sum(getattr(total, name) for total in self.totals) for name in names}

    def _breakdown(self) -> dict[str, Any]:
        """Where the time of a resume went, by part; a part that the engine does not tell is empty."""
        parts: dict[str, list[float | None]] = {
            "client": [turn.client_s for turn in self.resumes],
            "queue": [turn.queue_s for turn in self.resumes],
            "prefill": [turn.prefill_s for turn in self.resumes],
            "delivery": [turn.delivery_s for turn in self.resumes],
        }
        return {name: figures((v for v in values if v is not None), scale=1e3) for name, values in parts.items()}

    def _count(self, name: str) -> int | None:
        return self.after[name] - self.before[name] if name in self.after else None

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
        before = self.before["policy"].get(name, {})
        return {key: count - before.get(key, 0) for key, count in self.after["policy"].get(name, {}).items()}

    def _account(self) -> dict[str, int]:
        """The engine's own count of prompt tokens by source, prefetches included; empty where it has none."""
        before = self.before.get("engine", {})
        return {source: count - before.get(source, 0) for source, count in self.after.get("engine", {}).items()}

    def rounds(self) -> list[dict[str, Any]]:
        """TTFT and hit share by number of the turn, so that runs of unequal length can be compared."""
        numbers = sorted({turn.number for turn in self.turns})
        by_number = {number: [turn for turn in self.turns if turn.number == number] for number in numbers}
        return [
            {"round": number, "ttft_ms": figures((t.ttft_s for t in turns), scale=1e3), "hit": _hit(turns)}
            for number, turns in by_number.items()
        ]

    def timeline(self, points: int) -> list[list[float]]:
        """Occupancy over time, thinned out to about ``points``."""
        step = max(1, len(self.occupancy) // points)
        return [[round(at, 3), round(share, 4)] for at, share in self.occupancy[::step]]


def _reduction(tokens: Mapping[str, int]) -> dict[str, float]:
    """See "prefill token reduction ratio": on the critical path, and of everything that was computed."""
    spent = tokens["computed"] + tokens["prefetched"] + tokens["aborted"]
    return {
        "critical": round(1 - tokens["computed"] / tokens["prompt"], 6),
        "total": round(1 - spent / tokens["prompt"], 6),
    }


def _hit(turns: Sequence[Turn]) -> float | None:
    prompt = sum(turn.prompt for turn in turns)
    return round(sum(turn.cached for turn in turns) / prompt, 6) if prompt else None
