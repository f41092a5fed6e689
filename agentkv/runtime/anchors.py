"""Leases on what agents' prompts begin with, held while any of their runs lives and a while longer."""

import math
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from attrs import define

from agentkv.engines.base import Engine, PrefillRequest
from agentkv.errors import EngineError
from agentkv.kv import Directive
from agentkv.report import Ledger
from agentkv.runtime.feed import Feed
from agentkv.runtime.program import AgentProgram
from agentkv.runtime.tenure import LEASE_TTL, owner_of

__all__ = ("AnchorKey", "Anchors")

AnchorKey = tuple[str, tuple[int, ...], str | None]


@define
class _Anchor:
    number: int
    ids: tuple[int, ...]
    ledger: Ledger
    ttl: float
    users: int = 1
    token: str | None = None
    until: float = math.inf


class Anchors:
    """The anchors that living runs use, by agent and salt. Leases are taken by the task that runs ``run``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[AnchorKey, _Anchor] = {}
        self._numbers = count(1)
        # Other runtimes may hold the same agents' anchors in this engine, whose requests have ids of their own each.
        self._mine = secrets.token_hex(4)
        self._jobs: Feed[Callable[[], Awaitable[None]]] = Feed()

    def hold(self, agent: AgentProgram, salt: str | None, ledger: Ledger, ttl: float) -> AnchorKey | None:
        """Use ``agent``'s anchor until ``let_go``; None where nothing can be leased.

        ``ledger`` pays for the request that takes the lease; ``ttl`` seconds it stays when nobody uses it.
        """
        block = self._engine.info.block_size
        whole = len(agent.anchor) // block * block
        if not whole or self._engine.info.capabilities.get("leases") != "on":
            return None
        key = (agent.agent.name, agent.anchor[:whole], salt)
        anchor, now = self._held.get(key), self._engine.clock.now()
        if anchor is None or anchor.until < now:
            # One token more than the whole blocks, or the last of them would be computed again.
            anchor = self._held[key] = _Anchor(next(self._numbers), agent.anchor[: whole + 1], ledger, ttl)
        else:
            anchor.users += 1
            anchor.ttl, anchor.until = max(anchor.ttl, ttl), math.inf
            anchor.ledger = ledger
        if anchor.token is None:
            self._jobs.put(partial(self._lease, key))
        return key

    def let_go(self, key: AnchorKey) -> None:
        """A run that held the anchor is over. The last one's leaves it its ``ttl``."""
        anchor = self._held.get(key)
        if anchor is None or not anchor.users:
            return
        anchor.users -= 1
        if not anchor.users and anchor.token is None:
            del self._held[key]
        elif not anchor.users and anchor.token is not None:
            anchor.until = self._engine.clock.now() + anchor.ttl
            self._jobs.put(partial(self._leave, anchor.token, anchor.ttl))

    def renewals(self) -> list[dict[str, Any]]:
        """What keeps the anchors in use alive, for one ``renew``. Forgets those whose time is over."""
        now = self._engine.clock.now()
        self._held = {key: anchor for key, anchor in self._held.items() if anchor.until >= now}
        return [
            {"token": a.token, "ttl": max(a.ttl, LEASE_TTL)}
            for a in self._held.values()
            if a.users and a.token is not None
        ]

    async def run(self) -> None:
        """Take leases as they are wanted, one after the other, until cancelled.

        An engine that gives none leaves anchors to its LRU.
        """
        async for job in self._jobs:
            with suppress(EngineError):
                await job()

    async def _leave(self, token: str, ttl: float) -> None:
        await self._engine.kv("renew", {"leases": [{"token": token, "ttl": ttl}]})

    async def _lease(self, key: AnchorKey) -> None:
        anchor = self._held.get(key)
        if anchor is None or not anchor.users or anchor.token is not None:
            return
        name, _, salt = key
        request = PrefillRequest(
            request_id=f"anchor/{name}/{self._mine}/{anchor.number}",
            token_ids=list(anchor.ids),
            cache_salt=salt,
            tag=f"anchor/{name}",
            directive=Directive(
                kind="prefill",
                run=f"anchor/{name}"[:256],
                owner=owner_of(salt),
                lease_class="anchor",
                ttl=max(anchor.ttl, LEASE_TTL),
            ),
        )
        receipt = await self._engine.prefill(request)
        anchor.ledger.keeping(receipt)
        anchor.token = None if receipt.grant is None else receipt.grant.token
        if not anchor.users and anchor.token is not None:
            # Its last user left meanwhile.
            self._jobs.put(partial(self._leave, anchor.token, anchor.ttl))
