"""How much of its life a run has requests in the engine, as opposed to waiting for tools: seen, not declared."""

from statistics import median

from attrs import define

__all__ = ("Duty",)

#: Spells of each kind that have to be seen before anything is concluded from them.
ENOUGH = 8
#: Spells of each run that the averages are over: runs that were started together work and wait together, so that
#: fewer would show the moment and not the rule.
SPELLS = 4
#: A spell counts as at most so many times the average, or as so many seconds if that is more: a run that waits a day
#: for somebody's answer says nothing about the others.
OUTLIER, LEAST = 8, 0.05


@define
class _Spell:
    """Whether a run is at work, and since when."""

    working: bool
    since: float


class Duty:
    """Owns the averages over all runs of how long they work and how long they wait, and who does which now.

    A run works from the arrival of a request, or from its admission if that comes later, until none is left. An average
    begins with the median of the first spells.
    """

    def __init__(self) -> None:
        self._spells: dict[str, _Spell] = {}
        self._work = self._wait = 0.0
        self._seen = [0, 0]
        self._first: tuple[list[float], list[float]] = ([], [])

    @property
    def share(self) -> float:
        """Share of time in which a run works; 1 until enough was seen."""
        if min(self._seen) < ENOUGH:
            return 1.0
        return self._work / (self._work + self._wait) if self._work > 0 else 1.0

    @property
    def wait(self) -> float:
        """Seconds that a run waits between two requests, on average; 0 until enough was seen."""
        return self._wait if min(self._seen) >= ENOUGH else 0.0

    def began(self, run: str, now: float) -> None:
        """A run's first request has arrived, or the first since it had none."""
        spell = self._spells.get(run)
        if spell is not None and not spell.working:
            self._wait = self._average(1, self._wait, now - spell.since)
        self._spells[run] = _Spell(True, now)

    def ended(self, run: str, now: float, *, admitted: bool) -> None:
        """A run's last request has left; it was ``admitted`` at some time before, or waited in vain."""
        spell = self._spells.get(run)
        if spell is None or not spell.working:
            return
        if admitted:
            self._work = self._average(0, self._work, now - spell.since)
        self._spells[run] = _Spell(False, now)

    def let_in(self, run: str, now: float) -> None:
        """A run was admitted, at first or again after a pause: what its requests waited till now is no work."""
        if run in self._spells and self._spells[run].working:
            self._spells[run] = _Spell(True, now)

    def forget(self, run: str) -> None:
        """A run is over; how long it has waited since its last request says nothing."""
        self._spells.pop(run, None)

    def _average(self, kind: int, before: float, seconds: float) -> float:
        seconds = max(0.0, seconds)
        self._seen[kind] += 1
        if self._seen[kind] <= ENOUGH:
            self._first[kind].append(seconds)
            return median(self._first[kind])
        weight = 1 / min(self._seen[kind], SPELLS * max(ENOUGH, len(self._spells)))
        return before + weight * (min(seconds, OUTLIER * max(before, LEAST)) - before)
