"""A run's standing with its engine: its place in the line, its leases, and their end."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
from attrs import evolve

from agentkv.engines.base import Engine
from agentkv.errors import AdmissionRefused
from agentkv.kv import Directive, Grant, LeaseClass
from agentkv.runtime.events import Queued

__all__ = ("LEASE_TTL", "Tenure", "owner_of")

# Seconds a lease and a place last unless renewed: what a client that dies leaves behind is free after this.
LEASE_TTL = 20.0
MAX_REUSE = 3600.0


# The run in whose tool this is: engine and ticket. What it starts there must not wait behind it for room.
_parent: ContextVar[tuple[str, str] | None] = ContextVar("_parent", default=None)


class Tenure:
    """What one run holds on an engine that manages KV; on another engine every method does nothing.

    Of a branch it is what the branch holds, in a place under that of ``outer``, whose declaration covers it. Times are
    the engine clock's seconds. ``salt`` is the tenant's. Tokens of leases never leave this object.
    """

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        salt: str | None,
        publish: Callable[[Queued], None],
        outer: "Tenure | None" = None,
    ) -> None:
        self._engine, self._run_id, self._salt, self._publish = engine, run_id, salt, publish
        self._owner, self._outer = owner_of(salt), outer
        capabilities = engine.info.capabilities
        self.managed = "on" in (capabilities.get("leases"), capabilities.get("admission"))
        self.ticket: str | None = None
        self.declared = 0
        self.refused: list[str] = [] if outer is None else outer.refused
        self._taken_over: list[str] = []
        self._beginning = anyio.Lock()
        self._claim: dict[str, Any] = {}
        self._estimate: Callable[[], int] | None = None
        # Whether its requests are held until there is room for it, as far as is known.
        self.waits = False
        self._hold: Callable[[], None] | None = None
        self._queued = self._lost = False
        self._leases: dict[str, Grant] = {}
        self._ahead: dict[str, Grant] = {}
        self._reuse_at: float | None = None

    @property
    def tickets(self) -> list[str]:
        """Its own place, and those of branches whose KV it has taken over."""
        return [*([] if self.ticket is None else [self.ticket]), *self._taken_over]

    def inner(self) -> "Tenure":
        """That of a branch."""
        return Tenure(self._engine, self._run_id, self._salt, self._publish, self)

    async def begin(self) -> bool:
        """Take a place under the run's, for a branch that has none yet; whether requests may be sent for it.

        A branch may when its run has a place, or needs none.
        """
        if self._outer is None or not self.managed:
            return True
        async with self._beginning:
            if self.ticket is not None:
                return True
            if not await self._outer.begin() or self._outer.ticket is None:
                return not self._outer.managed
            self._claim = {"run": self._run_id, "owner": self._owner, "parent": self._outer.ticket}
            await self._declare()
            return True

    async def admit(
        self,
        blocks: int,
        anchor: str = "",
        anchor_blocks: int = 0,
        *,
        held: int | None = None,
        estimate: Callable[[], int] | None = None,
    ) -> None:
        """Declare that the run will hold ``blocks`` at its largest, once. Raises ``AdmissionRefused``.

        ``anchor_blocks`` of them are those of ``anchor``, which all runs that name it hold in common, ``held`` those
        of its first prompt and answer, after which it grows (None: it may hold all at once). ``estimate`` says anew
        how many blocks it will be, while the run waits and more becomes known.
        """
        if not self.managed or self.ticket is not None:
            return
        self.declared, self._estimate = blocks, estimate
        self._claim = {"run": self._run_id, "owner": self._owner, "anchor": anchor, "anchor_blocks": anchor_blocks}
        if held is not None:
            self._claim["held"] = held
        parent = _parent.get()
        if parent is not None and parent[0] == self._engine.info.engine_id:
            self._claim["parent"] = parent[1]
        await self._declare()

    async def _declare(self) -> None:
        payload = {**self._claim, "blocks": self.declared, "ttl": LEASE_TTL}
        # Shielded: a run that is cancelled meanwhile would not know the ticket that it has to give back.
        with anyio.CancelScope(shield=True):
            answer = await self._engine.kv("admit", payload)
        if (why := answer.get("refused")) is not None:
            raise AdmissionRefused(f"run {self._run_id!r} was not admitted: {why}")
        if "error" in answer:
            self._give_up_on_leases(str(answer["error"]))
            return
        self.ticket = answer["ticket"]
        self.placed(answer)

    def as_parent(self) -> None:
        """Have runs that the calling task starts count as this run's children, which never wait for room."""
        _parent.set(None if self.ticket is None else (self._engine.info.engine_id, self.ticket))

    def _give_up_on_leases(self, why: str) -> None:
        """The engine manages KV no more: the run goes on as on any other engine, and its report says so."""
        self.managed = False
        self.ticket = None
        self.refused.append(why)

    def placed(self, place: dict[str, Any] | None) -> None:
        """Take note of the run's place, as the engine tells it, and publish it while the run waits.

        None: the engine knows the run no more, since nobody renewed it in time; it is declared anew before its
        next generation.
        """
        self._queued = place is not None and place["state"] == "queued"
        self.waits = place is not None and place["state"] != "admitted"
        if self.waits and self._hold is not None:
            self._hold()
        if place is None:
            self._lose("the engine gave up the run, which was not renewed in time")
        elif self._queued and self._outer is None:
            at = self._engine.clock.now()
            self._publish(Queued(position=place["position"], estimate=place["estimate"], at=at))

    def _lose(self, why: str) -> None:
        self.ticket, self._lost = None, True
        self._leases.clear()
        self._ahead.clear()
        self.refused.append(why)

    async def reconsider(self) -> None:
        """Tell the engine if the run, which still waits, is expected to hold more or less than it was."""
        if self._queued and self._estimate is not None and (blocks := self._estimate()) != self.declared:
            await self._update(blocks)

    async def grow(self, blocks: int) -> None:
        """Make sure, before a later generation, that the run has its place, and one that is large enough."""
        if self._lost and self.ticket is None and self.managed:
            self.declared = max(self.declared, blocks)
            self._claim.pop("held", None)
            await self._declare()
        elif blocks > self.declared:
            await self._update(blocks)

    async def _update(self, blocks: int) -> None:
        if self.ticket is not None:
            self.declared = blocks
            await self._engine.kv("update", {"ticket": self.ticket, "blocks": blocks})

    def generation(self, agent: str, *, resume: bool) -> Directive | None:
        """The directive of a generation on ``agent``'s chain."""
        if not self.managed:
            return None
        before = self._leases.get(agent)
        base = evolve(self._base(before, resume=resume), lease_class=self._class)
        return base if before is None else evolve(base, handle=before.handle)

    def ahead(self, agent: str) -> Directive | None:
        """The directive of a prefetch of ``agent``'s chain."""
        if not self.managed:
            return None
        return evolve(self._base(self._ahead.get(agent)), kind="prefill", lease_class="speculative")

    @property
    def _class(self) -> LeaseClass:
        return "chain" if self._outer is None else "branch"

    def _base(self, before: Grant | None, *, resume: bool = False) -> Directive:
        return Directive(
            run=self._run_id,
            owner=self._owner,
            resume=resume,
            ttl=LEASE_TTL,
            ticket=self.ticket,
            lease=None if before is None else before.token,
        )

    @contextmanager
    def asking(self, hold: Callable[[], None]) -> Iterator[None]:
        """While the body asks for a generation, call ``hold`` when the engine says that it holds it."""
        self._hold = hold
        try:
            yield
        finally:
            self._hold = None

    def granted(self, agent: str, grant: Grant | None, *, ahead: bool = False) -> None:
        """Keep what a request's end brought."""
        # Of a generation that ended: its run was let in, whatever the last heartbeat said.
        self.waits = self.waits and ahead
        if grant is None:
            return
        if grant.reason is not None:
            self.refused.append(grant.reason)
        if grant.token is not None:
            (self._ahead if ahead else self._leases)[agent] = grant

    async def waiting(self, expected: float | None) -> None:
        """The run waits for tools: its chains are wanted again in ``expected`` seconds (None: not known)."""
        self._reuse_at = None if expected is None else self._engine.clock.now() + expected
        if renewals := self.renewals():
            await self._engine.kv("renew", {"leases": renewals})

    def renewals(self) -> list[dict[str, Any]]:
        """What keeps the run's leases alive, for one ``renew``."""
        renewal: dict[str, Any] = {"ttl": LEASE_TTL}
        if self._reuse_at is not None:
            renewal["expected_reuse"] = min(max(0.0, self._reuse_at - self._engine.clock.now()), MAX_REUSE)
        held = [*self._leases.values(), *self._ahead.values()]
        return [{"token": grant.token, **renewal} for grant in held]

    async def take_over(self, branch: "Tenure") -> None:
        """What ``branch`` holds is held here from now on, instead of what was held of the same chains."""
        replaced = [self._leases[agent] for agent in branch._leases if agent in self._leases]
        gone = [grant.token for grant in (*replaced, *self._ahead.values(), *branch._ahead.values())]
        self._leases |= branch._leases
        self._ahead.clear()
        self._taken_over += branch.tickets
        if adopted := [grant.token for grant in branch._leases.values()]:
            renewals = [{"token": token, "ttl": LEASE_TTL, "class": self._class} for token in adopted]
            await self._engine.kv("renew", {"leases": renewals})
        if gone:
            await self._engine.kv("release", {"tokens": gone})

    async def leave(self) -> None:
        """The run or branch is over: its leases and its places are given back at once."""
        ticket, self.ticket = self.ticket, None
        self._taken_over.clear()
        held = [grant.token for grant in (*self._leases.values(), *self._ahead.values())]
        self._leases.clear()
        self._ahead.clear()
        if ticket is not None:
            await self._engine.kv("leave", {"tickets": [ticket]})
        # A run that once lost its place may hold leases that belong to no ticket.
        if held and (ticket is None or self._lost):
            await self._engine.kv("release", {"tokens": held})


def owner_of(salt: str | None) -> str:
    """The name under which a tenant's leases stand in records, which does not give its salt away."""
    return "" if salt is None else hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
