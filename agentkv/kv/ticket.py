"""One run's place in the line of an engine."""

from typing import Literal

from attrs import frozen

__all__ = ("AdmissionState", "Ticket")

AdmissionState = Literal["queued", "admitted", "paused"]


@frozen(kw_only=True)
class Ticket:
    """One run's place: ``blocks`` is its working set, ``anchor_blocks`` of which are the anchor named ``anchor``.

    An anchor that several active runs share is counted once. A child's ``blocks`` come on top of what its
    parent declared; 0 says that the parent's declaration covers it. ``held`` of the blocks it holds already, or will
    with its first prompt (None: not known, so it may be all of them); ``step`` is the most by which they grew at
    once. ``arrived``, ``admitted_at`` and ``expires`` are engine seconds; ``serial`` is the order of arrival;
    ``bypassed`` counts the runs that passed this one.
    """

    token: str
    serial: int
    run: str
    owner: str
    blocks: int
    anchor: str = ""
    anchor_blocks: int = 0
    parent: str | None = None
    held: int | None = None
    step: int = 0
    state: AdmissionState = "queued"
    arrived: float = 0.0
    admitted_at: float | None = None
    expires: float = 0.0
    bypassed: int = 0

    @property
    def now(self) -> int:
        """Blocks that it holds now, its anchor's included."""
        return self.blocks if self.held is None else min(self.blocks, max(self.held, self.anchor_blocks))

    @property
    def soon(self) -> int:
        """Blocks that it holds after one more step as large as its largest."""
        return min(self.blocks, self.now + self.step)
