"""One task that keeps alive what the living runs of a runtime hold, and the anchors of their agents."""

from collections.abc import Callable
from typing import Any

import anyio
from attrs import define

from agentkv.engines.base import Engine, PrefillRequest, Receipt
from agentkv.errors import EngineError
from agentkv.kv import Directive
from agentkv.runtime.program import AgentProgram
from agentkv.runtime.tenure import LEASE_TTL, Tenure

__all__ = ("Heartbeat",)

# Seconds of the engine's clock between beats: three may be lost before anything expires.
BEAT = LEASE_TTL / 4

AnchorKey = tuple[str, tuple[int, ...], str | None]


@define
class _Anchor:
    users: int = 0
    token: str | None = None


class Heartbeat:
    """Knows every living ``Tenure`` and every leased anchor. ``anchor_ttl``: how long an unused anchor stays."""

    def __init__(self, engine: Engine, owner: str, anchor_ttl: float) -> None:
        self._engine, self._owner, self._anchor_ttl = engine, owner, anchor_ttl
        self._living: set[Tenure] = set()
        self._anchors: dict[AnchorKey, _Anchor] = {}
        self._someone = anyio.Event()

    def join(self, tenure: Tenure) -> None:
        """Keep ``tenure`` alive from now on."""
        if tenure.managed:
            self._living.add(tenure)
            self._someone.set()

    def part(self, tenure: Tenure) -> None:
        """Let go of ``tenure``."""
        self._living.discard(tenure)

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
        tenures = [tenure for tenure in self._living if tenure.ticket is not None]
        if tenures:
            payload = {"tickets": [tenure.ticket for tenure in tenures], "ttl": LEASE_TTL}
            places = (await self._engine.kv("heartbeat", payload)).get("runs", [])
            for tenure, place in zip(tenures, places, strict=False):
                if place is not None:
                    tenure.placed(place)
        renewals: list[dict[str, Any]] = [entry for tenure in self._living for entry in tenure.renewals()]
        used = [anchor for anchor in self._anchors.values() if anchor.users and anchor.token]
        renewals += [{"token": anchor.token, "ttl": self._anchor_ttl} for anchor in used]
        if renewals:
            await self._engine.kv("renew", {"leases": renewals})

    async def hold_anchor(
        self, agent: AgentProgram, salt: str | None, run_id: str, book: Callable[[Receipt], None]
    ) -> AnchorKey | None:
        """Lease ``agent``'s anchor for a run that is admitted; None where nothing can be leased.

        ``book`` takes what the request for it cost.
        """
        block = self._engine.info.block_size
        whole = len(agent.anchor) // block * block
        if not whole or self._engine.info.capabilities.get("leases") != "on":
            return None
        key = (agent.agent.name, agent.anchor[:whole], salt)
        anchor = self._anchors.setdefault(key, _Anchor())
        anchor.users += 1
        if anchor.users == 1:
            # One token more than the whole blocks, or the last of them would be computed again.
            anchor.token = await self._lease(key, agent.anchor[: whole + 1], run_id, book)
        return key

    async def _lease(
        self, key: AnchorKey, ids: tuple[int, ...], run_id: str, book: Callable[[Receipt], None]
    ) -> str | None:
        directive = Directive(kind="prefill", run=run_id, owner=self._owner, lease_class="anchor", ttl=self._anchor_ttl)
        request = PrefillRequest(
            request_id=f"{run_id}/anchor/{key[0]}",
            token_ids=list(ids),
            cache_salt=key[2],
            tag=f"{run_id}/anchor",
            directive=directive,
        )
        try:
            receipt = await self._engine.prefill(request)
        except EngineError:
            # A prefetch that finds no room is given up; the anchor then lives by least recent use.
            return None
        book(receipt)
        return None if receipt.grant is None else receipt.grant.token

    def let_go(self, key: AnchorKey) -> None:
        """A run that held the anchor is over. Unused, it expires by itself after ``anchor_ttl``."""
        self._anchors[key].users -= 1
