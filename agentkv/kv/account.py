"""What a scheduler itself knows of the prompt tokens it has had computed, answered or not."""

from typing import Any

from attrs import define

__all__ = ("WorkAccount",)


@define
class _Progress:
    """``hit``: tokens found cached at the first start. ``lost``: tokens that a preemption threw away."""

    hit: int
    lost: int = 0


class WorkAccount:
    """Sums over requests with a directive that have ended, in tokens.

    A request that is answered has had its prompt computed less what it found cached; that much its client is
    told. Beyond that: what one that ended without an answer has cost, and what was computed again after a
    preemption, output included.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Progress] = {}
        self._preempted: set[str] = set()
        self._answered = {"requests": 0, "prompt": 0, "computed": 0}
        self._unanswered = {"requests": 0, "computed": 0}
        self._recomputed = 0

    @property
    def awaits_restart(self) -> bool:
        """Whether a preempted request has not started again yet."""
        return bool(self._preempted)

    def started(self, request: str, hit: int) -> None:
        """``request`` goes into a step for the first time, or again after a preemption, on ``hit`` cached tokens."""
        progress = self._open.get(request)
        if progress is None:
            self._open[request] = _Progress(hit)
        elif request in self._preempted:
            self._preempted.discard(request)
            self._recomputed += max(0, progress.lost - hit)
            progress.lost = 0

    def preempted(self, request: str, computed: int) -> None:
        """``request`` loses its blocks, with the KV of its first ``computed`` tokens in them."""
        if (progress := self._open.get(request)) is not None:
            progress.lost = computed
            self._preempted.add(request)

    def ended(self, request: str, *, prompt: int, computed: int, answered: bool) -> None:
        """``request`` ends, ``answered`` in full or not, with KV of ``computed`` tokens of prompt and output."""
        self._preempted.discard(request)
        progress = self._open.pop(request, None)
        if answered:
            hit = progress.hit if progress is not None else 0
            self._answered["requests"] += 1
            self._answered["prompt"] += prompt
            self._answered["computed"] += prompt - hit
            return
        self._unanswered["requests"] += 1
        if progress is not None:
            self._unanswered["computed"] += max(0, min(max(computed, progress.lost), prompt) - progress.hit)

    def totals(self) -> dict[str, Any]:
        """The sums so far as a JSON object."""
        return {
            "answered": dict(self._answered),
            "unanswered": dict(self._unanswered),
            "recomputed": self._recomputed,
        }
