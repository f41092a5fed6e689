"""Who holds the pool, over time."""

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
    """Shares of the pool by ``classes``; each point is a second and one share a class. ``peak``: most held at once.

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


class Sampler:
    """Looks at the pool while agents run, four times a second of the engine's clock to begin with.

    A look costs a real engine a fraction of a millisecond between two steps, and no tokens.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._managed = engine.info.capabilities.get("leases") == "on"
        self._points: list[tuple[float, dict[str, float]]] = []
        self._peak: float | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        clock, pause = self._engine.clock, SAMPLE_SECONDS
        began = clock.now()
        while True:
            shares = await self._look()
            self._points.append((clock.now() - began, shares))
            self._peak = max(self._peak or 0.0, sum(share for name, share in shares.items() if name not in IDLE))
            if len(self._points) >= 2 * MAX_POINTS:
                del self._points[1::2]
                pause *= 2
            await clock.sleep(pause)

    def series(self) -> Series:
        """What was seen so far. An engine that stopped managing KV in between has classes of both kinds."""
        classes = tuple(dict.fromkeys(name for _, shares in self._points for name in shares))
        points = tuple((at, *(shares.get(name, 0.0) for name in classes)) for at, shares in self._points)
        return Series(classes=classes, points=points, peak=None if self._peak is None else round(self._peak, 4))

    async def _look(self) -> dict[str, float]:
        if self._managed:
            blocks = await self._engine.kv("occupancy", {})
            if "error" not in blocks:
                pool = sum(blocks.values())
                return {name: count / pool for name, count in blocks.items()}
        stats = await self._engine.stats()
        if "reusable_blocks" not in stats:
            return {"used": stats["pool_used"], "unused": 1 - stats["pool_used"]}
        pool, free, cached = stats["pool_blocks"], stats["free_blocks"], stats["reusable_blocks"]
        return {"running": (pool - free) / pool, "cached": cached / pool, "free": (free - cached) / pool}
