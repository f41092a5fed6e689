"""What an engine's steps with prefill in them take, learnt from the steps themselves."""

from collections.abc import Iterable

from agentkv.kv.least_squares import LeastSquares
from agentkv.kv.step_timer import StepTimer

__all__ = ("PrefillCost",)

# Steps with prefill that have to be seen before anything is concluded from them.
ENOUGH = 16
# A step counts for half behind this many others: contexts grow, and a machine's other work comes and goes.
HALF_LIFE = 200
FADES = 0.5 ** (1 / HALF_LIFE)
# Seconds of a step's own, per sequence that decodes, per token prefilled; and by how much that may well be off.
GUESSES = (0.01, 0.0002, 0.0001)
RANGES = (0.05, 0.005, 0.003)


class PrefillCost:
    """Fits ``seconds = own + decoding * per sequence + tokens * per token`` to the steps that prefill.

    Steps that only decode run in captured graphs on a GPU and say nothing about those that do not. Steps end in the
    order in which they were planned, see ``StepTimer``. Times are engine seconds.
    """

    def __init__(self) -> None:
        self._fit = LeastSquares(GUESSES, RANGES, memory=FADES)
        # Sequences that decode, tokens that are prefilled.
        self._steps: StepTimer[tuple[int, int]] = StepTimer()
        self._seen = 0
        self._seconds = self._tokens = 0.0

    def planned(self, step: object, rows: Iterable[int], now: float) -> None:
        """``step`` is to compute so many tokens for each of its ``rows``; one alone is a sequence that decodes."""
        decoding = tokens = 0
        for row in rows:
            if row > 1:
                tokens += row
            else:
                decoding += 1
        self._steps.planned(step, (decoding, tokens), now)

    def ended(self, step: object, now: float) -> None:
        """``step`` has been computed."""
        if (found := self._steps.ended(step, now)) is None:
            return
        (decoding, tokens), seconds = found
        if tokens and seconds > 0:
            self._fit.add((1.0, decoding, tokens), seconds)
            self._seen += 1
            self._seconds = FADES * self._seconds + seconds
            self._tokens = FADES * self._tokens + tokens

    def per_step(self, decoding: int) -> float | None:
        """The tokens whose prefill takes as long as all else in a step in which so many sequences decode.

        None until enough was seen to tell.
        """
        if self._seen < ENOUGH:
            return None
        own, sequence, token = self._fit.solve()
        return (own + decoding * sequence) / token if token > 0 else None

    def per_token(self) -> float | None:
        """Seconds of steps that prefill by their tokens, all else in them included; None until enough was seen to tell.

        So it is more than a token adds to a step; what that is cannot be told where all steps are filled by prompts.
        """
        return self._seconds / self._tokens if self._seen >= ENOUGH else None

    def seconds(self, tokens: int) -> float:
        """By how much so many tokens make a step longer: a guess at first."""
        return tokens * self._fit.solve()[2]
