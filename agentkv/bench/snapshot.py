"""All counters of a repetition at one moment; what happened between two moments is a difference."""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import fields, frozen

from agentkv.engines import Engine
from agentkv.kv import stores_avoided
from agentkv.report import Totals

__all__ = ("Snapshot", "difference", "moved", "read_counters", "sum_totals")


@frozen(kw_only=True)
class Snapshot:
    """``at``: seconds of the engine's clock. ``totals``, ``recomputed`` and ``prefetches`` are the clients' books,
    ``prefetch_prompt`` the prompt tokens of the prefetches that ended, ``generations`` those that ended;
    ``counters`` are the engine's own.
    """

    at: float
    totals: Totals
    generations: int
    recomputed: int
    prefetches: int
    prefetch_prompt: int
    counters: Mapping[str, Any]


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """How far each counter has gone; one that appeared meanwhile began at nothing."""
    return {name: count - before.get(name, 0) for name, count in after.items()}


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What moved between two tiers meanwhile, by the totals of ``Tier.stats``; empty where there is one only."""
    found = difference(before, after)
    # No difference of what was avoided at either end: each of these is none below 0.
    return {**found, "stores_avoided": stores_avoided(left=found["left"], copied=found["copied"])} if found else {}


def sum_totals(totals: Iterable[Totals]) -> Totals:
    """The sums over several ledgers."""
    sums = {field.name: 0 for field in fields(Totals)}
    for each in totals:
        for name in sums:
            sums[name] += getattr(each, name)
    return Totals(**sums)


async def read_counters(engine: Engine) -> dict[str, Any]:
    """The engine's counters, with those of its KV policy under ``policy`` where it has one."""
    managed = engine.info.capabilities.get("leases") == "on"
    policy = await engine.kv("stats", {}) if managed else {}
    return {**await engine.stats(), "policy": {} if "error" in policy else policy}
