"""What a run is likely to ask for behind its next generation, and what of it is worth prefilling first.

A run goes from one node that asks to the next as a Markov chain whose chances are those declared, corrected by what
runs of the graph were seen to do (a Dirichlet prior with ``PRIOR_RUNS`` observations in it).
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from attrs import frozen

from agentkv.follow.cost import StepTimes

__all__ = ("NextStep", "chances", "most_valuable", "reached", "room_price")

# What is declared counts as much as so many runs that went on from a node.
PRIOR_RUNS = 2.0
# Nothing is looked for further ahead than so many generations: what it was prefilled for would be long in coming.
HORIZON = 3
# However empty a pool is, what is prefilled takes the place of something that is wanted again with this chance.
ROOM_LEAST = 0.1

Onward = Callable[[str], Mapping[str, float]]


@frozen
class NextStep:
    """``missing`` tokens of a prompt that ``agent`` is asked with the chance ``probability``."""

    agent: str
    probability: float
    missing: int

    def saving(self, times: StepTimes, room: float, decoding: int = 0) -> float:
        """Seconds of prefill that are expected to be saved, less those that it is expected to cost others.

        ``room`` is the price of its room, as ``room_price`` gives it. ``decoding`` generations wait for a step that
        prefills, and for its tokens where these would never have been computed otherwise.
        """
        seconds = self.missing * times.token_s
        others = decoding * (times.launch_s + (1 - self.probability) * seconds)
        return (self.probability - room) * seconds - others


def chances(declared: Mapping[str, float], seen: Mapping[str, int]) -> dict[str, float]:
    """How likely each of the ``declared`` ways is, of which so many were ``seen``. Adds up to what was declared, 1."""
    runs = sum(seen.get(target, 0) for target in declared)
    return {
        target: (seen.get(target, 0) + PRIOR_RUNS * chance) / (runs + PRIOR_RUNS) for target, chance in declared.items()
    }


def reached(start: str, goals: Collection[str], onward: Onward, within: int = HORIZON) -> float:
    """How likely a run that is at ``start`` comes to one of ``goals`` with the next ``within`` generations.

    ``onward`` gives the chances of the ways on from a node; it has none from where the run ends.
    """
    found, at = 0.0, {start: 1.0}
    for _ in range(within):
        further: dict[str, float] = {}
        for node, likely in at.items():
            for target, chance in onward(node).items():
                if target in goals:
                    found += likely * chance
                else:
                    further[target] = further.get(target, 0.0) + likely * chance
        at = further
    # Sums of floats may pass what they stand for by a rounding.
    return min(found, 1.0)


def room_price(declared: int, pool: int | None) -> float:
    """How likely what gives way to a block has to be computed again: as likely as a block is spoken for.

    ``declared`` blocks are what living runs hold at their largest, ``pool`` is how many there are, None if unknown.
    """
    return ROOM_LEAST if not pool else min(1.0, max(ROOM_LEAST, declared / pool))


def most_valuable(steps: Iterable[NextStep], times: StepTimes, room: float, decoding: int = 0) -> tuple[NextStep, ...]:
    """Those of ``steps`` that are expected to save more than they cost others, the most valuable first."""
    savings = ((step.saving(times, room, decoding), step) for step in steps)
    return tuple(step for saving, step in sorted(savings, key=lambda each: -each[0]) if saving > 0)
