"""Least squares with coefficients that are not negative, one observation after the other."""

from collections.abc import Sequence

__all__ = ("LeastSquares",)

# Of an observation; what is measured should soon outweigh what was guessed.
GUESS_WEIGHT = 0.05


class LeastSquares:
    """The coefficients ``x`` >= 0 for which the sums ``features · x`` come nearest to what was measured.

    Keeps the normal equations alone, so an observation costs ``size`` ** 2 and nothing is stored. ``memory``: each
    observation counts for so much of the one behind it; 1 forgets nothing. ``guesses`` are what the coefficients are
    taken for until observations say otherwise, ``ranges`` by how much they may well be off.
    """

    def __init__(self, guesses: Sequence[float], ranges: Sequence[float], *, memory: float = 1.0) -> None:
        self._size, self._memory = len(guesses), memory
        self._guesses, self._ranges = tuple(guesses), tuple(ranges)
        self._products = [[0.0] * self._size for _ in guesses]
        self._targets = [0.0] * self._size

    def add(self, features: Sequence[float], measured: float) -> None:
        """Note one observation; each counts by its relative error, whether it is short or long."""
        row = [feature / measured for feature in features]
        for i, left in enumerate(row):
            products = self._products[i]
            for j, right in enumerate(row):
                products[j] = self._memory * products[j] + left * right
            self._targets[i] = self._memory * self._targets[i] + left

    def solve(self) -> list[float]:
        """The coefficients; one that would be negative is 0, and the others make do without it."""
        used = list(range(self._size))
        while used:
            found = self._solve(used)
            least = min(range(len(used)), key=found.__getitem__)
            if found[least] >= 0:
                return [found[used.index(i)] if i in used else 0.0 for i in range(self._size)]
            del used[least]
        return [0.0] * self._size

    def _solve(self, used: Sequence[int]) -> list[float]:
        """Gaussian elimination over the features in ``used``; the guesses make every pivot positive."""
        rows = [[self._products[i][j] for j in used] + [self._targets[i]] for i in used]
        # As an observation of each coefficient alone, of which its range is the error.
        weights = [GUESS_WEIGHT / self._ranges[i] ** 2 for i in used]
        for place, (i, weight) in enumerate(zip(used, weights, strict=True)):
            rows[place][place] += weight
            rows[place][-1] += weight * self._guesses[i]
        for pivot, row in enumerate(rows):
            # Less can only be a rounding: of observations that are all alike, or of very different times.
            row[pivot] = max(row[pivot], weights[pivot])
            for other in rows[pivot + 1 :]:
                factor = other[pivot] / row[pivot]
                other[pivot:] = [a - factor * b for a, b in zip(other[pivot:], row[pivot:], strict=True)]
        found = [0.0] * len(used)
        for pivot in reversed(range(len(used))):
            known = sum(rows[pivot][j] * found[j] for j in range(pivot + 1, len(used)))
            found[pivot] = (rows[pivot][-1] - known) / rows[pivot][pivot]
        return found
