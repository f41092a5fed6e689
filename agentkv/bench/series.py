"""Who holds the pool, and what is in a second tier, over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from agentkv.engines import Engine

__all__ = ("IDLE", "Sampler", "Series")

SAMPLE_SECONDS = 0.25
# With twice as many points every other one is dropped, and the pool is looked at half as often from there on.
MAX_POINTS = 300
# Classes of blocks that neither a request nor a lease holds.
IDLE = frozenset(("cached", "free", "unused"))


@frozen(kw_only=True)
class Series:
    """Shares of a memory by ``classes``; each point is a second and one share a class. ``peak``: most held at once.

    ``anchor``, ``chain``, ``branch``, ``speculative``: held by a lease of that class; ``running``: by requests
    alone; ``cached``: by nobody, and still to be hit; ``free``: the rest. An engine that manages no KV has
    ``running``, ``cached`` and ``free``, or, where it says no more, ``used`` and ``unused``.
    """

    classes: tuple[str, ...] = ()
    points: tuple[tuple[float, ...], ...] = ()
    peak: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded."""
        points = [[round(at, 3), *(round(share, 4) for share in shares)] for at, *shares in self.points]
        return {"classes": list(self.classes), "points": points}


@frozen
class _Look:
    """Shares of the pool, and of host memory where there is a second tier, at one moment."""

    at: float
    pool: dict[str, float]
    tier: dict[str, float]


class Sampler:
    """Looks at both tiers while agents run, four times a second of the engine's clock to begin with.

    A look costs a real engine a fraction of a millisecond between two steps, and no tokens.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._managed = engine.info.capabilities.get("leases") == "on"
        self._points: list[_Look] = []
        self._peak: float | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        clock, pause = self._engine.clock, SAMPLE_SECONDS
        began = clock.now()
        while True:
            pool, tier = await self._look()
            self._points.append(_Look(clock.now() - began, pool, tier))
            self._peak = max(self._peak or 0.0, sum(share for name, share in pool.items() if name not in IDLE))
            if len(self._points) >= 2 * MAX_POINTS:
                del self._points[1::2]
                pause *= 2
            await clock.sleep(pause)

    def series(self) -> Series:
        """The pool so far. An engine that stopped managing KV in between has classes of both kinds."""
        peak = None if self._peak is None else round(self._peak, 4)
        return _series([(look.at, look.pool) for look in self._points], peak)

    def tier(self) -> Series:
        """Host memory so far: ``away``, ``also in the pool`` and ``free``; empty without a second tier."""
        return _series([(look.at, look.tier) for look in self._points if look.tier], None)

    async def _look(self) -> tuple[dict[str, float], dict[str, float]]:
        if self._managed:
            blocks = await self._engine.kv("occupancy", {})
            if "error" not in blocks:
                host = blocks.pop("tier", {})
                return _shares(blocks), _shares(host)
        return await self._unmanaged(), {}

    async def _unmanaged(self) -> dict[str, float]:
        stats = await self._engine.stats()
        if "reusable_blocks" not in stats:
            return {"used": stats["pool_used"], "unused": 1 - stats["pool_used"]}
        pool, free, cached = stats["pool_blocks"], stats["free_blocks"], stats["reusable_blocks"]
        return {"running": (pool - free) / pool, "cached": cached / pool, "free": (free - cached) / pool}


def _series(looks: Sequence[tuple[float, Mapping[str, float]]], peak: float | None) -> Series:
    classes = tuple(dict.fromkeys(name for _, shares in looks for name in shares))
    points = tuple((at, *(shares.get(name, 0.0) for name in classes)) for at, shares in looks)
    return Series(classes=classes, points=points, peak=peak)


def _shares(blocks: Mapping[str, int]) -> dict[str, float]:
    whole = sum(blocks.values())
    return {name: count / whole for name, count in blocks.items()}
