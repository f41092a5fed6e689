"""One run's place in the line of an engine."""

from typing import Literal

from attrs import frozen

__all__ = ("AdmissionState", "Ticket")

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
