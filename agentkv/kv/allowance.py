"""How much KV admitted runs may have together: what the tiers hold, and a little that is cheap to compute again."""

from attrs import Factory, define, frozen

from agentkv.kv.duty import Duty
from agentkv.kv.prefill_cost import PrefillCost

__all__ = ("PAUSE_RATIO", "PEAK_RATIO", "SPARE", "Allowance", "Moment")

#: Share of the pool that runs may be expected to fill at their fullest moment: beyond, living KV is evicted.
PEAK_RATIO = 0.95
#: What living runs may really hold, as parts of what they are allowed, before one is paused. A paused run computes its
#: whole chain anew and its resume waits for a place, while chains that are short of a tenth compute that tenth.
PAUSE_RATIO = 1.1
#: Share of the engine's time that may go to computing again what did not stay in the pool.
SPARE = 0.2
#: Parts of the pool in which the slack is counted, so that it stays the same while what it follows from hardly changes.
GRAINS = 64


@frozen
class Moment:
    """What of an allowance changes all along: ``duty``, a share of time, and ``slack``, in blocks."""

    duty: float = 1.0
    slack: int = 0


@define
class Allowance:
    """Blocks of admitted runs: those of the ``pool`` and, ``far`` from it, of host memory; ``block_size`` tokens each.

    ``duty`` knows how long runs work and wait, ``cost`` what prompt tokens take. Until enough of both was seen, all
    runs work all the time and nothing is cheap.
    """

    pool: int
    peak_ratio: float = PEAK_RATIO
    far: int = 0
    block_size: int = 1
    duty: Duty = Factory(Duty)
    cost: PrefillCost = Factory(PrefillCost)

    @property
    def held(self) -> int:
        """Blocks that both tiers hold."""
        return self.pool + self.far

    @property
    def slack(self) -> int:
        """Blocks by which living chains may exceed the tiers, since they are computed again in time to spare.

        Where ``n`` tokens of chains that wait are not there, and each run resumes once in so many seconds, ``n`` are
        computed again in that time, or less: what resumes soon keeps its KV the longest. So they may take SPARE of the
        seconds that runs wait. The time that requests take does not count: a crowded engine would be allowed more.
        """
        seconds = self.cost.per_token()
        if not seconds:
            return 0
        grain = max(1, self.pool // GRAINS)
        blocks = int(min(self.pool, SPARE * self.duty.wait / (seconds * self.block_size)))
        return blocks // grain * grain

    def moment(self) -> Moment:
        """What changes, as it is now."""
        slack = self.slack
        return Moment(self.duty.share if self.far or slack else 1.0, slack)
