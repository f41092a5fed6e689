"""One task that keeps alive what the living runs of a runtime hold in the engine."""

import anyio

from agentkv.engines.base import Engine
from agentkv.errors import EngineError
from agentkv.runtime.anchors import Anchors
from agentkv.runtime.tenure import LEASE_TTL, Tenure

__all__ = ("Heartbeat",)

# Seconds of the engine's clock between beats: three may be lost before anything expires.
BEAT = LEASE_TTL / 4


class Heartbeat:
    """Knows every living ``Tenure``, and the anchors that their runs use."""

    def __init__(self, engine: Engine, anchors: Anchors) -> None:
        self._engine, self._anchors = engine, anchors
        self._living: set[Tenure] = set()
        self._someone = anyio.Event()

    def join(self, tenure: Tenure) -> None:
        """Keep ``tenure`` alive from now on."""
        if tenure.managed:
            self._living.add(tenure)
            self._someone.set()

    def part(self, tenure: Tenure) -> None:
        """Let go of ``tenure``."""
        self._living.discard(tenure)

    @property
    def declared(self) -> int:
        """Blocks that the living runs which have their place may hold at their largest, all together."""
        return sum(tenure.declared for tenure in self._living if tenure.ticket is not None)

    async def reconsider(self) -> None:
        """More is known of what runs will hold: have those that wait declare it. Raises ``EngineError``."""
        for tenure in tuple(self._living):
            await tenure.reconsider()

    async def run(self) -> None:
        """Beat until cancelled; rests while no run lives."""
        while True:
            if not self._living:
                self._someone = anyio.Event()
                await self._someone.wait()
            await self._engine.clock.sleep(BEAT)
            try:
                await self._beat()
            except EngineError:
                # Runs learn of a dead engine from their own requests.
                continue

    async def _beat(self) -> None:
        held = [(tenure, ticket) for tenure in self._living for ticket in tenure.tickets]
        if held:
            payload = {"tickets": [ticket for _, ticket in held], "ttl": LEASE_TTL}
            places = (await self._engine.kv("heartbeat", payload)).get("runs", [])
            for (tenure, ticket), place in zip(held, places, strict=False):
                if ticket == tenure.ticket or place is None:
                    tenure.placed(place)
        renewals = [entry for tenure in self._living for entry in tenure.renewals()] + self._anchors.renewals()
        if renewals:
            await self._engine.kv("renew", {"leases": renewals})
