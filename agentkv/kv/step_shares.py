"""What of an engine's step is left for prefetches, and for cold prompts while others decode or wait."""

from collections.abc import Callable, Sequence

from agentkv.kv.prefill_cost import PrefillCost

__all__ = ("StepShares",)

# A cold prompt's part of a step takes at most so many times what the step takes without it. Smaller parts hold the
# others up for less time each, but there are more of them, and each costs a step.
PARTS = 4
# Steps in a row in which cold prompts may get nothing.
PATIENCE = 3
# More cold prompts than this hold up each other, and no step is kept free of them.
CROWD = 2
# Of a step's tokens, the least that a part may be, and what it is until the steps' cost is known.
LEAST, UNKNOWN = 1 / 16, 1 / 2


class StepShares:
    """Divides one step after the other. ``prefetch_step``: most tokens for prefetches, None for half of a step.

    While others decode or wait, all cold prompts together get at most a part, not in two steps in a row, since what
    arrives meanwhile may have to wait for the step behind, too; and nothing in a step in which a resume is prefilled,
    unless they got nothing three times. More than two cold prompts hold up each other: they get half of
    every step. A prompt of which no more is left than what the step takes without it counts
    as everybody else's work.
    """

    def __init__(self, prefetch_step: int | None) -> None:
        self.cost = PrefillCost()
        self._prefetch_step = prefetch_step
        self._prefetch = prefetch_step or 0
        self._step_tokens = self._decoding = 0
        self._resumes = self._crowd = False
        self._part: tuple[float, int] | None = None
        self._given = self._rests = False
        self._asked = False
        self._passed = 0

    @property
    def limits_cold(self) -> bool:
        """Whether anybody decodes or waits who could be held up by a cold prompt."""
        return self._resumes or self._decoding > 0

    def open(
        self,
        *,
        waiting: Sequence[str],
        prefilling: Sequence[str],
        decoding: int,
        is_resume: Callable[[str], bool],
        step_tokens: int,
    ) -> None:
        """Begin a step. Prefetches apart, ``waiting`` are to start, first in line first, ``prefilling`` are in the
        middle of their prompts, and so many sequences are ``decoding``. Prefetches get nothing while others wait.
        """
        share = max(1, step_tokens // 2) if self._prefetch_step is None else self._prefetch_step
        self._prefetch = 0 if waiting else share
        self._passed = self._passed + 1 if self._asked and not self._given else 0
        self._rests, self._given, self._asked = self._given, False, False
        begun = sum(map(is_resume, prefilling))
        resumes = sum(map(is_resume, waiting))
        cold = len(waiting) + len(prefilling) - resumes - begun
        # A cold prompt that may be passed no more keeps whoever stands behind it waiting.
        first_in_line = bool(resumes) and not is_resume(waiting[0])
        self._resumes, self._decoding, self._step_tokens = resumes + begun > 0, decoding, step_tokens
        self._crowd = cold > CROWD or first_in_line
        self._part = None

    def prefetch(self, tokens: int) -> int:
        """How many of ``tokens`` a prefetch may compute; they are gone from its share."""
        given = min(tokens, self._prefetch)
        self._prefetch -= given
        return given

    def cold(self, tokens: int) -> int:
        """How many of the ``tokens`` that a cold prompt lacks it may compute; they are gone from the part."""
        if not self.limits_cold:
            return tokens
        small, left = self._part or self._share()
        if tokens <= small:
            return tokens
        self._asked = True
        if not self._crowd and (self._rests or (self._resumes and self._passed < PATIENCE)):
            return 0
        given = min(tokens, left)
        self._given = self._given or given > 0
        self._part = small, left - given
        return given

    def _share(self) -> tuple[float, int]:
        """Up to which length a prompt is nothing out of the ordinary, and the part of this step."""
        most = max(1, self._step_tokens // 2)
        if self._crowd:
            self._part = 0.0, most
            return self._part
        worth = self.cost.per_step(self._decoding)
        part = UNKNOWN * self._step_tokens if worth is None else PARTS * worth
        self._part = part / PARTS, max(1, min(most, max(int(part), int(LEAST * self._step_tokens))))
        return self._part
