"""The clients' books against the engine's own, to the token."""

from collections.abc import Mapping
from typing import Any

from agentkv.bench.snapshot import Snapshot, difference

__all__ = ("reconcile",)

WINDOW = "a window cuts requests in two: only a run to the end can be reconciled"


def reconcile(before: Snapshot, after: Snapshot, *, whole: bool) -> dict[str, Any]:
    """What was computed between two moments, as three accounts tell it; ``whole``: no request was under way at either.

    ``answered``: the ledgers' sums over generations and prefetches that ended. ``engine``: vLLM's
    ``prompt_tokens_by_source``, which counts a request at its first token; in the simulator what its steps computed,
    repeated and aborted work included (``steps``). ``scheduler``: our scheduler's sums, where it manages KV: over
    requests that it answered, and what no client is told of, prefetches cut off (``unanswered``) and work repeated
    after a preemption (``recomputed``). ``unread``: requests that the scheduler answered when their client had
    turned away. ``agrees`` is None where there is nothing to compare with.
    """
    if not whole:
        return {"agrees": None, "why": WINDOW}
    answered = _answered(before, after)
    engine = difference(before.counters.get("engine", {}), after.counters.get("engine", {}))
    scheduler = _scheduler(before.counters["policy"].get("work"), after.counters["policy"].get("work"))
    steps = None
    if "steps" in after.counters:
        steps = after.counters["computed_tokens"] - before.counters["computed_tokens"]
    found = {"answered": answered, "engine": engine or None, "steps": steps, "scheduler": scheduler}
    unread = None
    if scheduler is not None:
        of = scheduler["answered"]
        unread = {name: of[name] - answered[name] for name in ("requests", "computed")}
    repeated = after.counters.get("preemptions", 0) - before.counters.get("preemptions", 0)
    # A client may turn away between vLLM's count of the answer and its reading of it.
    slack = after.totals.aborted - before.totals.aborted if unread is None else unread["computed"]
    checks = [*_engine_checks(answered, engine, slack), *_scheduler_checks(unread)]
    # Without our scheduler nobody knows what a stock one repeats.
    if steps is not None and (scheduler is not None or not repeated):
        checks.append(abs(steps - _everything(answered, scheduler)) <= repeated)
    return {"agrees": all(checks) if checks else None, **found, "unread": unread}


def _answered(before: Snapshot, after: Snapshot) -> dict[str, int]:
    new, old = after.totals, before.totals
    generations = after.generations - before.generations
    computed = new.computed - old.computed + new.prefetched - old.prefetched + new.upkeep - old.upkeep
    prompt = new.prompt - old.prompt + after.prefetch_prompt - before.prefetch_prompt
    return {
        "requests": generations + after.prefetches - before.prefetches,
        "prompt": prompt,
        "cached": prompt - computed,
        "computed": computed,
    }


def _engine_checks(answered: Mapping[str, int], engine: Mapping[str, int], slack: int) -> list[bool]:
    return [0 <= engine["local_compute"] - answered["computed"] <= slack] if engine else []


def _scheduler_checks(unread: Mapping[str, int] | None) -> list[bool]:
    if unread is None:
        return []
    if unread["requests"] == 0:
        return [unread["computed"] == 0]
    return [unread["requests"] > 0, unread["computed"] >= 0]


def _everything(answered: Mapping[str, int], scheduler: Mapping[str, Any] | None) -> int:
    if scheduler is None:
        return answered["computed"]
    parts = scheduler["answered"]["computed"], scheduler["unanswered"]["computed"], scheduler["recomputed"]
    return int(sum(parts))


def _scheduler(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if before is None or after is None:
        return None
    return {
        "answered": difference(before["answered"], after["answered"]),
        "unanswered": difference(before["unanswered"], after["unanswered"]),
        "recomputed": after["recomputed"] - before["recomputed"],
    }
