"""Admission by working set: a run starts when what it will hold at its largest fits beside those alive.

First come, first served; a smaller run may pass one that does not fit, but only ``max_bypass`` times, then
nothing passes any more. When nothing is active the first in line is admitted whatever its size, so no set of
declarations can deadlock. A child (branch or sub-agent) of a run that was ever admitted never waits.
"""

from collections.abc import Iterable
from typing import Literal

from attrs import evolve, frozen

__all__ = ("Admission", "AdmissionMode", "AdmissionState", "Ticket")

AdmissionMode = Literal["auto", "none"]
AdmissionState = Literal["queued", "admitted", "paused"]


@frozen(kw_only=True)
class Ticket:
    """One run's place: ``blocks`` is its working set, ``anchor_blocks`` of which are the anchor named ``anchor``.

    An anchor that several active runs share is counted once. A child's ``blocks`` come on top of what its
    parent declared; 0 says that the parent's declaration covers it. ``arrived``, ``admitted_at`` and ``expires``
    are engine seconds; ``serial`` is the order of arrival; ``bypassed`` counts the runs that passed this one.
    """

    token: str
    serial: int
    run: str
    owner: str
    blocks: int
    anchor: str = ""
    anchor_blocks: int = 0
    parent: str | None = None
    state: AdmissionState = "queued"
    arrived: float = 0.0
    admitted_at: float | None = None
    expires: float = 0.0
    bypassed: int = 0


class Admission:
    """Owns the line of runs. ``capacity``: blocks that active runs may plan to hold together."""

    def __init__(
        self, capacity: int, *, mode: AdmissionMode = "auto", max_queued: int = 1024, max_bypass: int = 4
    ) -> None:
        self.capacity = capacity
        self.mode = mode
        self._max_queued = max_queued
        self._max_bypass = max_bypass
        self._tickets: dict[str, Ticket] = {}
        self._serial = 0
        self._mean_life = 0.0

    def __len__(self) -> int:
        return len(self._tickets)

    def get(self, token: str) -> Ticket | None:
        return self._tickets.get(token)

    @property
    def planned(self) -> int:
        """Blocks that the active runs, children included, plan to hold; shared anchors once."""
        return self._plan()[0]

    def line(self) -> list[Ticket]:
        """Runs that wait, in the order in which they are looked at: paused ones kept their place by arrival."""
        # The mapping keeps arrival order: replacing a ticket leaves it in its place.
        return [ticket for ticket in self._tickets.values() if ticket.state != "admitted"]

    def position(self, token: str) -> int:
        """Place in line, from 1; 0 for a run that does not wait."""
        order = [ticket.token for ticket in self.line()]
        return order.index(token) + 1 if token in order else 0

    def estimate(self, token: str) -> float | None:
        """Expected seconds until admission, from the mean life of runs that left; None before any has left."""
        place = self.position(token)
        active = sum(ticket.state == "admitted" and ticket.parent is None for ticket in self._tickets.values())
        if place == 0:
            return 0.0
        return place * self._mean_life / max(1, active) if self._mean_life else None

    def declare(self, ticket: Ticket) -> Ticket | str:
        """Take a run in; returns its ticket (in line until ``admit``; a child's at once) or why it is refused."""
        if ticket.parent is not None and ticket.parent not in self._tickets:
            return "parent: no such ticket"
        if sum(each.state == "queued" for each in self._tickets.values()) >= self._max_queued:
            return "the line is full"
        self._serial += 1
        placed = evolve(ticket, serial=self._serial, state="queued", admitted_at=None)
        if self.mode == "none" or self._family_started(placed):
            placed = evolve(placed, state="admitted", admitted_at=placed.arrived)
        self._tickets[placed.token] = placed
        return placed

    def admit(self, now: float) -> list[Ticket]:
        """Start every run that may start now, and return their tickets."""
        started: list[Ticket] = []
        while (chosen := self._next()) is not None:
            self._pass_over(chosen)
            first = chosen.admitted_at if chosen.admitted_at is not None else now
            started.append(self._set(evolve(chosen, state="admitted", admitted_at=first)))
            started += self._start_children(chosen.token, now)
        return started

    def grow(self, token: str, blocks: int) -> Ticket | None:
        """Raise a run's estimate to what it is seen to hold; never lowers it."""
        ticket = self._tickets.get(token)
        return self._set(evolve(ticket, blocks=max(blocks, ticket.blocks))) if ticket is not None else None

    def update(self, token: str, blocks: int) -> Ticket | None:
        """Replace a run's estimate by a better one, larger or smaller; the anchor's blocks are its least."""
        ticket = self._tickets.get(token)
        return self._set(evolve(ticket, blocks=max(blocks, ticket.anchor_blocks))) if ticket is not None else None

    def renew(self, token: str, expires: float) -> Ticket | None:
        """Move the run's end of life."""
        ticket = self._tickets.get(token)
        return self._set(evolve(ticket, expires=expires)) if ticket is not None else None

    def overload(self) -> list[Ticket]:
        """Active runs to pause so that the others fit: the youngest first, the oldest never, no children."""
        if self.mode == "none":
            return []
        active = [t for t in self._tickets.values() if t.state == "admitted" and t.parent is None]
        chosen: list[Ticket] = []
        excess = self.planned - self.capacity
        for ticket in sorted(active, key=lambda ticket: -ticket.serial)[:-1]:
            if excess <= 0:
                break
            chosen.append(ticket)
            excess -= ticket.blocks - ticket.anchor_blocks
        return chosen

    def pause(self, token: str) -> Ticket | None:
        """Put an active run back into line, at its place by arrival. Its children go on."""
        ticket = self._tickets.get(token)
        if ticket is None or ticket.state != "admitted" or self.mode == "none":
            return None
        return self._set(evolve(ticket, state="paused", bypassed=0))

    def leave(self, token: str, now: float) -> list[Ticket]:
        """End a run and its descendants; returns their tickets."""
        ticket = self._tickets.pop(token, None)
        if ticket is None:
            return []
        if ticket.admitted_at is not None and ticket.parent is None:
            life = now - ticket.admitted_at
            self._mean_life = life if not self._mean_life else 0.8 * self._mean_life + 0.2 * life
        gone = [ticket]
        for child in [each.token for each in self._tickets.values() if each.parent == token]:
            gone += self.leave(child, now)
        return gone

    def expire(self, now: float) -> list[Ticket]:
        """End the runs whose client has not renewed them in time; returns their tickets."""
        overdue = [ticket.token for ticket in self._tickets.values() if ticket.expires <= now]
        return [gone for token in overdue for gone in self.leave(token, now)]

    @property
    def next_expiry(self) -> float | None:
        """When the next run ends unless it is renewed; None where there is none."""
        return min((ticket.expires for ticket in self._tickets.values()), default=None)

    def _set(self, ticket: Ticket) -> Ticket:
        self._tickets[ticket.token] = ticket
        return ticket

    def _family_started(self, ticket: Ticket) -> bool:
        """Whether the parent was ever admitted: a paused one waits, but what it waits for must go on."""
        parent = self._tickets.get(ticket.parent) if ticket.parent is not None else None
        return parent is not None and parent.admitted_at is not None

    def _plan(self) -> tuple[int, dict[str, int], bool]:
        """Blocks planned, the shared anchors among them, and whether any run is active."""
        active = [ticket for ticket in self._tickets.values() if ticket.state == "admitted"]
        anchors = _anchors(active)
        own = sum(ticket.blocks - ticket.anchor_blocks for ticket in active)
        return own + sum(anchors.values()), anchors, bool(active)

    def _next(self) -> Ticket | None:
        """The first in line that fits, unless someone before it has been passed often enough."""
        planned, anchors, active = self._plan()
        for place, ticket in enumerate(t for t in self.line() if t.parent is None):
            shared = min(anchors.get(ticket.anchor, 0), ticket.anchor_blocks) if ticket.anchor else 0
            if planned + ticket.blocks - shared <= self.capacity or (place == 0 and not active):
                return ticket
            if ticket.bypassed >= self._max_bypass:
                return None
        return None

    def _pass_over(self, chosen: Ticket) -> None:
        for ticket in self.line():
            if ticket.serial < chosen.serial and ticket.parent is None:
                self._set(evolve(ticket, bypassed=ticket.bypassed + 1))

    def _start_children(self, token: str, now: float) -> list[Ticket]:
        children = [each for each in self._tickets.values() if each.parent == token and each.state == "queued"]
        started = [self._set(evolve(child, state="admitted", admitted_at=now)) for child in children]
        return started + [each for child in children for each in self._start_children(child.token, now)]


def _anchors(tickets: Iterable[Ticket]) -> dict[str, int]:
    """Blocks of each distinct anchor; one without a name is its run's own."""
    sizes: dict[str, int] = {}
    for ticket in tickets:
        if ticket.anchor_blocks:
            key = ticket.anchor or ticket.token
            sizes[key] = max(sizes.get(key, 0), ticket.anchor_blocks)
    return sizes
