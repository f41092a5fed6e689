"""Admission by working set: a run starts when what it will hold at its largest fits beside those alive.

Runs are at their largest at their ends, and those are not at one moment. Where all the largest together do not fit, a
run starts if the most that all will hold at one moment does, by what each holds now and lacks (``Planned.peak``), or
exceeds the pool by no more than is cheap to compute again (``Allowance``). Should they outgrow that all the same, since
runs do not grow at one pace, those that wait the longest lose the ends of their chains; beyond a tenth the youngest are
to be paused: by what is really held then, not by what is planned.

With a second tier, runs that wait for tools need not be in the pool: those alive have to fit into both tiers, and
those at work into the pool, as far as one can tell from the share of time that runs work.

First come, first served; a smaller run may pass one that does not fit, but only ``max_bypass`` times, then
nothing passes any more. When no run is active (children of paused ones may be) the first in line is admitted whatever
its size, so no set of declarations can deadlock. A child (branch or sub-agent) of a run ever admitted never waits.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from attrs import evolve

from agentkv.kv.allowance import PAUSE_RATIO, Allowance, Moment
from agentkv.kv.deadlines import Deadlines
from agentkv.kv.planned import Planned
from agentkv.kv.ticket import Ticket

__all__ = ("Admission", "AdmissionMode")

AdmissionMode = Literal["auto", "none"]


class Admission:
    """Owns the line of runs; ``allowance`` says how much those that are admitted may have together.

    ``watch`` is told each ticket that waits no more: its run was admitted, or is gone.
    """

    def __init__(
        self,
        allowance: Allowance,
        *,
        mode: AdmissionMode = "auto",
        max_queued: int = 1024,
        max_bypass: int = 4,
    ) -> None:
        self.allowance = allowance
        self.watch: Callable[[str], None] = lambda _: None
        self.mode = mode
        self._max_queued = max_queued
        self._max_bypass = max_bypass
        self._tickets: dict[str, Ticket] = {}
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        # Those that wait, by order of arrival (a paused run keeps its place); what they need beside anchors, sorted.
        self._line: list[tuple[int, str]] = []
        self._sizes: list[int] = []
        self._planned = Planned()
        self._ends = Deadlines()
        self._serial = 0
        self._mean_life = 0.0
        self._nothing_fits = False
        self._then = Moment()

    def __len__(self) -> int:
        return len(self._tickets)

    def get(self, token: str) -> Ticket | None:
        return self._tickets.get(token)

    @property
    def planned(self) -> int:
        """Blocks of the active runs, children included, each at its largest; shared anchors once."""
        return self._planned.blocks

    def line(self) -> list[Ticket]:
        """Runs that wait, in the order in which they are looked at: paused ones kept their place by arrival."""
        return [self._tickets[token] for _, token in self._line]

    def position(self, token: str) -> int:
        """Place in line, from 1; 0 for a run that does not wait."""
        ticket = self._tickets.get(token)
        if ticket is None or ticket.state == "admitted":
            return 0
        return bisect_left(self._line, (ticket.serial, token)) + 1

    def estimate(self, token: str) -> float | None:
        """Expected seconds until admission, from the mean life of runs that left; None before any has left."""
        place = self.position(token)
        if place == 0:
            return 0.0
        return place * self._mean_life / max(1, self._planned.roots) if self._mean_life else None

    def declare(self, ticket: Ticket) -> Ticket | str:
        """Take a run in; returns its ticket (in line until ``admit``; a child's at once) or why it is refused."""
        if ticket.parent is not None and ticket.parent not in self._tickets:
            return "parent: no such ticket"
        # Counted only where it can matter: the line holds paused runs, too, which take nobody's place.
        if len(self._line) >= self._max_queued and sum(t.state == "queued" for t in self.line()) >= self._max_queued:
            return "the line is full"
        self._serial += 1
        placed = evolve(ticket, serial=self._serial, state="queued", admitted_at=None)
        if self.mode == "none" or self._family_started(placed):
            placed = evolve(placed, state="admitted", admitted_at=placed.arrived)
        if placed.parent is not None:
            self._children[placed.parent].append(placed.token)
        self._ends.set(placed.token, placed.expires)
        return self._set(placed)

    def admit(self, now: float) -> list[Ticket]:
        """Start every run that may start now, and return their tickets."""
        started: list[Ticket] = []
        while (chosen := self._next()) is not None:
            self._pass_over(chosen)
            for each in self._family(chosen.token):
                if each.state != "admitted":
                    first = now if each.admitted_at is None else each.admitted_at
                    started.append(self._set(evolve(each, state="admitted", admitted_at=first)))
        return started

    def grow(self, token: str, blocks: int) -> Ticket | None:
        """Raise what a run holds, and its estimate with it, to what is seen; never lowers them."""
        ticket = self._tickets.get(token)
        if ticket is None or blocks <= ticket.now:
            return ticket
        if ticket.held is None:
            return self._set(evolve(ticket, blocks=blocks))
        step = max(ticket.step, blocks - max(ticket.now, ticket.held))
        return self._set(evolve(ticket, blocks=max(blocks, ticket.blocks), held=blocks, step=step))

    def update(self, token: str, blocks: int) -> Ticket | None:
        """Replace a run's estimate by a better one, larger or smaller; the anchor's blocks are its least."""
        ticket = self._tickets.get(token)
        return self._set(evolve(ticket, blocks=max(blocks, ticket.anchor_blocks))) if ticket is not None else None

    def renew(self, token: str, expires: float) -> Ticket | None:
        """Move the run's end of life."""
        ticket = self._tickets.get(token)
        if ticket is None:
            return None
        self._ends.set(token, expires)
        # Not by _set: who fits has not changed, and renewals are most of what is asked.
        self._tickets[token] = evolve(ticket, expires=expires)
        return self._tickets[token]

    def overload(self) -> list[Ticket]:
        """Active runs to pause so that the others' next steps fit: youngest first, the oldest never, no children."""
        excess = self._planned.soon - PAUSE_RATIO * (self.allowance.held + self.allowance.slack)
        if self.mode == "none" or excess <= 0:
            return []
        active = [t for t in self._tickets.values() if t.state == "admitted" and t.parent is None]
        chosen: list[Ticket] = []
        for ticket in sorted(active, key=lambda ticket: -ticket.serial)[:-1]:
            if excess <= 0:
                break
            chosen.append(ticket)
            excess -= ticket.soon - ticket.anchor_blocks
        return chosen

    def pause(self, token: str) -> Ticket | None:
        """Put an active run back into line, at its place by arrival. Its children go on."""
        ticket = self._tickets.get(token)
        if ticket is None or ticket.state != "admitted" or self.mode == "none":
            return None
        return self._set(evolve(ticket, state="paused", bypassed=0))

    def leave(self, token: str, now: float) -> list[Ticket]:
        """End a run and its descendants; returns their tickets."""
        gone = self._family(token)
        for ticket in gone:
            self._remove(ticket)
            if ticket.admitted_at is not None and ticket.parent is None:
                life = now - ticket.admitted_at
                self._mean_life = life if not self._mean_life else 0.8 * self._mean_life + 0.2 * life
        return gone

    def expire(self, now: float) -> list[Ticket]:
        """End the runs whose client has not renewed them in time; returns their tickets."""
        overdue = sorted(self._ends.due(now), key=lambda token: self._tickets[token].serial)
        return [gone for token in overdue for gone in self.leave(token, now)]

    @property
    def next_expiry(self) -> float | None:
        """When the next run ends unless it is renewed; None where there is none."""
        return self._ends.next

    def check_integrity(self) -> None:
        """Assert that what is kept up to date equals what the tickets say."""
        planned = Planned()
        for ticket in self._tickets.values():
            if ticket.state == "admitted":
                planned.add(ticket)
        assert (planned.blocks, planned.active, planned.roots, planned.soon) == (
            self._planned.blocks,
            self._planned.active,
            self._planned.roots,
            self._planned.soon,
        )
        assert self._sizes == sorted(ticket.blocks - ticket.anchor_blocks for ticket in self.line())
        assert self.line() == [ticket for ticket in self._tickets.values() if ticket.state != "admitted"]
        assert self.next_expiry == min((ticket.expires for ticket in self._tickets.values()), default=None)
        assert not (self._nothing_fits and self._fitting(self._then))

    def _set(self, ticket: Ticket) -> Ticket:
        old = self._tickets.get(ticket.token)
        if old is not None and old.state == "admitted":
            self._planned.remove(old)
        elif old is not None:
            self._out_of_line(old)
        self._tickets[ticket.token] = ticket
        if ticket.state == "admitted":
            self._planned.add(ticket)
            if old is None or old.state != "admitted":
                self.watch(ticket.token)
        else:
            insort(self._line, (ticket.serial, ticket.token))
            insort(self._sizes, ticket.blocks - ticket.anchor_blocks)
        self._nothing_fits = False
        return ticket

    def _remove(self, ticket: Ticket) -> None:
        del self._tickets[ticket.token]
        self._ends.drop(ticket.token)
        if ticket.state == "admitted":
            self._planned.remove(ticket)
        else:
            self._out_of_line(ticket)
            self.watch(ticket.token)
        if ticket.parent is not None and ticket.parent in self._children:
            self._children[ticket.parent].remove(ticket.token)
        self._children.pop(ticket.token, None)
        self._nothing_fits = False

    def _out_of_line(self, ticket: Ticket) -> None:
        del self._line[bisect_left(self._line, (ticket.serial, ticket.token))]
        del self._sizes[bisect_left(self._sizes, ticket.blocks - ticket.anchor_blocks)]

    def _family_started(self, ticket: Ticket) -> bool:
        """Whether the parent was ever admitted: a paused one waits, but what it waits for must go on."""
        parent = self._tickets.get(ticket.parent) if ticket.parent is not None else None
        return parent is not None and parent.admitted_at is not None

    def _next(self) -> Ticket | None:
        """The run that may start now; asked again and again by an engine that steps, answered anew after a change."""
        if not self._line:
            return None
        moment = self.allowance.moment()
        if self._nothing_fits and moment == self._then:
            return None
        found, self._then = self._fitting(moment), moment
        self._nothing_fits = found is None
        return found

    def _fitting(self, moment: Moment) -> Ticket | None:
        """The first in line that fits, unless someone before it has been passed often enough."""
        planned, allowance = self._planned, self.allowance
        for place, ticket in enumerate(t for t in map(self._waiting, self._line) if t.parent is None):
            # A look ahead is for the front of a line that may be thousands long; behind it nobody fits where the
            # least does not, and with a second tier nobody is looked at.
            front = place <= self._max_bypass
            if not front and (allowance.far or planned.blocks + self._sizes[0] > allowance.held):
                return None
            if self._fits(ticket, moment, look_ahead=front) or (place == 0 and not planned.roots):
                return ticket
            if ticket.bypassed >= self._max_bypass:
                return None
        return None

    def _fits(self, ticket: Ticket, moment: Moment, *, look_ahead: bool) -> bool:
        """Whether all could be at their largest at once or, by how far each has come, will never have too much.

        Where not all of it is to be in the pool, those at work have to be.
        """
        planned, allowance, shared = self._planned, self.allowance, self._planned.shared(ticket)
        here = not allowance.far
        if planned.blocks + ticket.blocks - shared > allowance.held:
            if not look_ahead:
                return False
            peak = max(planned.soon + ticket.soon - shared, planned.peak(ticket))
            if peak > allowance.peak_ratio * (allowance.held + moment.slack):
                return False
            here &= peak <= allowance.peak_ratio * allowance.pool
        return here or planned.at_work(moment.duty, ticket) <= allowance.pool

    def _waiting(self, place: tuple[int, str]) -> Ticket:
        return self._tickets[place[1]]

    def _pass_over(self, chosen: Ticket) -> None:
        for _, token in self._line[: bisect_left(self._line, (chosen.serial, chosen.token))]:
            ticket = self._tickets[token]
            if ticket.parent is None:
                self._tickets[token] = evolve(ticket, bypassed=ticket.bypassed + 1)

    def _family(self, token: str) -> list[Ticket]:
        """A run and its descendants, each behind its parent; a client may nest them as deep as it likes."""
        found, todo = [], [token] if token in self._tickets else []
        while todo:
            found.append(self._tickets[todo.pop()])
            todo += reversed(self._children.get(found[-1].token, ()))
        return found
