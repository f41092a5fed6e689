"""The KV policy of one engine: leases, prefetch limits and admission, tied together.

A real engine's scheduler and the simulated engine drive the same object. It does no I/O and reads no clock: every
operation takes ``now``, engine seconds. Nothing raises on what a client sent: it is refused, with a reason recorded.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from agentkv.kv.account import WorkAccount
from agentkv.kv.admission import Admission
from agentkv.kv.allowance import Allowance
from agentkv.kv.directive import Directive
from agentkv.kv.duty import Duty
from agentkv.kv.grant import Grant
from agentkv.kv.keeper import NO_BLOCKS, LeaseKeeper
from agentkv.kv.lease import BlockHolder, LeaseTable
from agentkv.kv.mover import TierPool
from agentkv.kv.prefetch_limit import PrefetchLimit
from agentkv.kv.record import Recorder, RecordKind
from agentkv.kv.room import HOPELESS_SECONDS
from agentkv.kv.settings import PolicySettings
from agentkv.kv.step_shares import StepShares
from agentkv.kv.ticket import Ticket
from agentkv.kv.tier import open_tier

__all__ = ("KVPolicy",)

UNKNOWN_TICKET = "ticket: no such ticket"


class KVPolicy:
    """Owns all KV decisions of one engine.

    ``pool_blocks``: usable blocks of the pool; ``block_size``: tokens a block; ``bytes_per_block``: for records.
    ``engine_id`` is unique to the engine's start. ``mint`` returns a fresh unguessable token each time.
    ``retry_seconds`` as in ``LeaseKeeper``. ``host``: the pool again, ``slots`` blocks of which fit into host memory.

    Life of a request: ``may_run`` (else keep it until it may), ``start``, then ``finish`` with its full blocks
    while it still refers to them, or ``abort``. When it needs more blocks than are free: ``make_room``.
    ``settle`` is to be called now and then, and after every operation that a client asked for.
    """

    def __init__(
        self,
        settings: PolicySettings,
        *,
        holder: BlockHolder,
        pool_blocks: int,
        block_size: int,
        engine_id: str,
        mint: Callable[[], str],
        bytes_per_block: int = 0,
        retry_seconds: float = HOPELESS_SECONDS,
        host: TierPool | None = None,
        slots: int = 0,
    ) -> None:
        self.settings = settings
        self.records = Recorder(bytes_per_block=bytes_per_block)
        self.work = WorkAccount()
        self.leases = LeaseKeeper(
            LeaseTable(holder, int(settings.kv_pool_ratio * pool_blocks)),
            self.records,
            engine_id=engine_id,
            block_size=block_size,
            mint=mint,
            mode=settings.prefix_cache_mode,
            retry_seconds=retry_seconds,
        )
        self.shares = StepShares(settings.prefetch_step)
        self._duty = Duty()
        allowance = Allowance(pool_blocks, settings.peak_ratio, slots, block_size, self._duty, self.shares.cost)
        self.admission = Admission(
            allowance, mode=settings.admission, max_queued=settings.max_queued, max_bypass=settings.max_bypass
        )
        self.tier = None if host is None else open_tier(self.leases, host, slots, pool_blocks, settings.tier_reserve)
        self.prefetches = PrefetchLimit(settings.branch_prefetch_limit)
        self._mint = mint
        self._live: Counter[str] = Counter()

    # Requests

    def may_run(self, directive: Directive) -> bool:
        """Whether the request may start: its run is admitted, or it is under no admission."""
        ticket = self.admission.get(directive.ticket) if directive.ticket else None
        return ticket is None or ticket.state == "admitted"

    def start(self, directive: Directive, request: str, now: float) -> str | None:
        """Count a request in; None, or the reason why it must be dropped (prefetches only)."""
        if directive.kind == "prefill":
            reason = self.prefetches.start(directive.run, request)
            if reason is not None:
                self.drop_prefetch(directive, request, reason, now)
            return reason
        if self.tier is not None:
            self.tier.arrived(request, directive.lease)
        if directive.ticket:
            if self.admission.get(directive.ticket) is None:
                self.leases.reject(UNKNOWN_TICKET, now, directive.run)
            elif not self._live[directive.ticket]:
                self._duty.began(directive.ticket, now)
            self._live[directive.ticket] += 1
        return None

    def finish(
        self, directive: Directive, request: str, blocks: Sequence[int], digests: Sequence[bytes], now: float
    ) -> Grant:
        """Count a finished request out and take its provisional lease on ``blocks`` (full, cached, in order)."""
        grant = self.leases.grant(directive, blocks, digests, now, request)
        if directive.ticket and grant.token is not None:
            self.admission.grow(directive.ticket, self.leases.table.ticket_blocks(directive.ticket))
        self.abort(directive, request, now)
        return grant

    def abort(self, directive: Directive, request: str, now: float) -> None:
        """Count a request out that takes no lease."""
        if self.tier is not None:
            self.tier.forget(request)
        self.leases.planner.references_changed()
        if directive.kind == "prefill":
            self.prefetches.end(directive.run, request)
        elif directive.ticket:
            self._live[directive.ticket] -= 1
            if self._live[directive.ticket] <= 0:
                del self._live[directive.ticket]
                ticket = self.admission.get(directive.ticket)
                admitted = ticket is not None and ticket.admitted_at is not None
                self._duty.ended(directive.ticket, now, admitted=admitted)
                self._relieve(now)

    def drop_prefetch(self, directive: Directive, request: str, reason: str, now: float) -> None:
        """Record that a prefetch was given up."""
        run, owner = directive.run, directive.owner
        self.records.add("prefetch.drop", now, run=run, owner=owner, reason=reason, for_whom=request)

    # Room

    def displace_speculative(
        self,
        need: int,
        request: str,
        now: float,
        *,
        worthless: Callable[[int], int],
        protect: frozenset[int] = NO_BLOCKS,
    ) -> None:
        """Let speculative leases go for ``need`` blocks ahead of unleased cached ones, which a pool hands out first.

        ``worthless(limit)`` counts the pool's free blocks that nobody asks for, up to ``limit``. ``protect`` are
        the cached blocks that the request builds on.
        """
        if self.leases.classes["speculative"] and (short := need - worthless(need)) > 0:
            self.leases.make_room(short, now, for_whom=request, protect=protect, only_speculative=True, partly=True)

    def make_room(
        self,
        deficit: int,
        request: str,
        now: float,
        *,
        prefetch: bool,
        protect: frozenset[int],
        drop_prefetches: Callable[[int], int],
        may_wait: bool = False,
    ) -> int:
        """Have KV give way to a request that lacks ``deficit`` blocks; returns the blocks that became free.

        Speculative leases first; for a ``prefetch`` nothing else. Then prefetches in progress:
        ``drop_prefetches(deficit)`` ends as many as it takes and may, and returns what that freed. Then all
        leases in the one order. ``protect`` are the cached blocks that the request builds on. ``may_wait``: it has
        not begun, and waits for copies rather than have living chains lose KV.
        """
        freed = self.leases.make_room(deficit, now, for_whom=request, protect=protect, only_speculative=True)
        if freed or prefetch:
            return freed
        freed = drop_prefetches(deficit)
        if freed >= deficit:
            return freed
        return freed + self.leases.make_room(deficit - freed, now, for_whom=request, protect=protect, may_wait=may_wait)

    # Runs

    def admit(
        self,
        *,
        run: str,
        blocks: int,
        ttl: float,
        now: float,
        owner: str = "",
        anchor: str = "",
        anchor_blocks: int = 0,
        parent: str | None = None,
        held: int | None = None,
    ) -> Ticket | str:
        """Declare a run's working set, ``held`` of it from its first prompt on; its ticket, or why it is refused."""
        declared = Ticket(
            token=self._mint(),
            serial=0,
            run=run,
            owner=owner,
            blocks=max(blocks, anchor_blocks),
            anchor=anchor,
            anchor_blocks=anchor_blocks,
            parent=parent,
            held=held,
            arrived=now,
            expires=now + ttl,
        )
        placed = self.admission.declare(declared)
        if isinstance(placed, str):
            self.records.add("admission.refuse", now, run=run, owner=owner, blocks=blocks, reason=placed)
            return placed
        if placed.state == "admitted":
            self._note("admission.admit", placed, now)
            return placed
        self._start_those_that_fit(now)
        latest = self.admission.get(placed.token) or placed
        if latest.state != "admitted":
            self._note("admission.queue", latest, now, reason=f"position {self.admission.position(latest.token)}")
        return latest

    def update(self, ticket: str, blocks: int, now: float) -> str | None:
        """Replace a run's estimate; None or a reason. May pause the youngest runs, or let others in."""
        if self.admission.update(ticket, blocks) is None:
            return self.leases.reject(UNKNOWN_TICKET, now)
        self._balance(now)
        return None

    def renew(self, ticket: str, ttl: float, now: float) -> str | None:
        """Move a run's end of life to ``now + ttl``; None or a reason. Its leases have their own."""
        return None if self.admission.renew(ticket, now + ttl) else self.leases.reject(UNKNOWN_TICKET, now)

    def leave(self, ticket: str, now: float) -> str | None:
        """End a run and its descendants: their leases are released, anchors apart. None or a reason."""
        if not (gone := self.admission.leave(ticket, now)):
            return self.leases.reject(UNKNOWN_TICKET, now)
        for each in gone:
            self._end(each, "admission.leave", now)
        self._start_those_that_fit(now)
        return None

    def settle(self, now: float) -> None:
        """End what is overdue and start what fits."""
        self.leases.expire(now)
        for each in self.admission.expire(now):
            self._end(each, "admission.expire", now)
        self._balance(now)

    def reset(self, now: float) -> int:
        """Drop every lease, as the prefix cache is about to be emptied; returns how many there were."""
        if self.tier is not None:
            self.tier.reset()
        return self.leases.reset(now)

    def stats(self) -> dict[str, Any]:
        """Counters as a JSON object.

        ``records`` counts events by kind, with the lease class where there is one, ``record_blocks`` their blocks;
        ``last_record`` is the cursor behind which ``events`` has only what is still to come. ``work`` is what
        requests have had computed (``WorkAccount.totals``), as far as the engine's scheduler keeps account of it.
        """
        return {
            **self.leases.stats(),
            **(self.tier.stats() if self.tier is not None else {}),
            "planned_blocks": self.admission.planned,
            "runs": len(self.admission),
            "runs_waiting": len(self.admission.line()),
            "prefetches": len(self.prefetches),
            "last_record": self.records.last,
            "records": dict(self.records.counts),
            "record_blocks": dict(self.records.blocks),
            "work": self.work.totals(),
        }

    def _balance(self, now: float) -> None:
        self._relieve(now)
        self._start_those_that_fit(now)

    def _relieve(self, now: float) -> None:
        """Pause the youngest runs if those alive outgrew the pool: now if they wait for a tool, else when they do."""
        for ticket in self.admission.overload():
            if not self._live[ticket.token]:
                self.admission.pause(ticket.token)
                self.leases.downgrade_ticket(ticket.token, now, "paused: living runs outgrew the pool")
                self._note("admission.pause", ticket, now)

    def _start_those_that_fit(self, now: float) -> None:
        for ticket in self.admission.admit(now):
            self._duty.let_in(ticket.token, now)
            self._note("admission.admit", ticket, now, ms=(now - ticket.arrived) * 1000)

    def _end(self, ticket: Ticket, kind: RecordKind, now: float) -> None:
        self._duty.forget(ticket.token)
        self.leases.release_ticket(ticket.token, now)
        self._note(kind, ticket, now)

    def _note(self, kind: RecordKind, ticket: Ticket, now: float, **more: Any) -> None:
        self.records.add(kind, now, run=ticket.run, owner=ticket.owner, blocks=ticket.blocks, **more)
