"""How sure a ratio of two means is."""

from collections.abc import Sequence
from random import Random

from agentkv.errors import SetupError

__all__ = ("ratio_interval",)

RESAMPLES = 2000
LEVEL = 0.95


def ratio_interval(pairs: Sequence[tuple[float, float]], *, seed: int) -> tuple[float, float, float]:
    """Mean of the first over mean of the second, with both ends of its 95 % interval: lower, ratio, upper.

    By the percentile bootstrap over pairs (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13),
    repeatable by ``seed``. Raises ``SetupError`` for no pairs, or times that are not above 0.
    """
    if not pairs or not all(one >= 0 and other > 0 for one, other in pairs):
        raise SetupError("a ratio of times needs at least one pair of times above 0")
    rng = Random(seed)  # noqa: S311 - repeatable, not secret
    drawn = sorted(_ratio(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    tail = (1 - LEVEL) / 2
    return drawn[int(tail * RESAMPLES)], _ratio(pairs), drawn[int((1 - tail) * RESAMPLES) - 1]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(one for one, _ in pairs) / sum(other for _, other in pairs)
