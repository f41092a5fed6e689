"""What an engine's steps with prefill in them take, learnt from the steps themselves."""

from collections import deque
from collections.abc import Iterable

from attrs import frozen

from agentkv.kv.least_squares import LeastSquares

__all__ = ("PrefillCost",)

# Steps with prefill that have to be seen before anything is concluded from them.
ENOUGH = 16
# A step counts for half behind this many others: contexts grow, and a machine's other work comes and goes.
HALF_LIFE = 200
# Seconds of a step's own, per sequence that decodes, per token prefilled; and by how much that may well be off.
GUESSES = (0.01, 0.0002, 0.0001)
RANGES = (0.05, 0.005, 0.003)


@frozen
class _Planned:
    step: object
    at: float
    decoding: int
    tokens: int


class PrefillCost:
    """Fits ``seconds = own + decoding * per sequence + tokens * per token`` to the steps that prefill.

    Steps that only decode run in captured graphs on a GPU and say nothing about those that do not. Steps end in the
    order in which they were planned; one may be planned before the last one ended. Times are engine seconds.
    """

    def __init__(self) -> None:
        self._fit = LeastSquares(GUESSES, RANGES, memory=0.5 ** (1 / HALF_LIFE))
        self._planned: deque[_Planned] = deque()
        self._ended = float("-inf")
        self._seen = 0

    def planned(self, step: object, rows: Iterable[int], now: float) -> None:
        """``step`` is to compute so many tokens for each of its ``rows``; one alone is a sequence that decodes."""
        decoding = tokens = 0
        for row in rows:
            if row > 1:
                tokens += row
            else:
                decoding += 1
        self._planned.append(_Planned(step, now, decoding, tokens))

    def ended(self, step: object, now: float) -> None:
        """``step`` has been computed; those planned before it that never ended are forgotten."""
        while self._planned:
            work = self._planned.popleft()
            if work.step is step:
                self._observe(work, now - max(work.at, self._ended))
                break
        self._ended = now

    def per_step(self, decoding: int) -> float | None:
        """The tokens whose prefill takes as long as all else in a step in which so many sequences decode.

        None until enough was seen to tell.
        """
        if self._seen < ENOUGH:
            return None
        own, sequence, token = self._fit.solve()
        return (own + decoding * sequence) / token if token > 0 else None

    def _observe(self, work: _Planned, seconds: float) -> None:
        if work.tokens and seconds > 0:
            self._fit.add((1.0, work.decoding, work.tokens), seconds)
            self._seen += 1
