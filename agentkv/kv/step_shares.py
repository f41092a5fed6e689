"""What of an engine's step is left for prefetches, and for cold prompts while others decode or wait."""

from collections.abc import Callable, Iterable, Sequence

from agentkv.kv.cold_load import ColdLoad
from agentkv.kv.prefill_cost import PrefillCost

__all__ = ("StepShares",)

# A cold prompt's part of a step takes at most so many times what the step takes without it. Smaller parts hold the
# others up for less time each, but there are more of them, and each costs a step.
PARTS = 4
# Steps in a row in which cold prompts may get nothing.
PATIENCE = 3
# More cold prompts than this hold up each other, and no step is kept free of them.
CROWD = 2
# Share of the engine's time that cold prompts may take before parts do more harm than good: parts make more steps of
# the same tokens, and where there is no time for that every cold prompt waits for all before it. Swept over 0.25, 0.5,
# 0.75, 0.9 and 1.1 (100 chains on the simulated H200, 8 draws, docs/leases.md): with a pool for all, p95 of all TTFT is
# 418, 418, 418, 591 and 666 ms; with one for half of them, p95 after a tool is 152 ms at 0.25, 141 at 0.5 and 0.75.
BUSY = 0.5
# Of a step's tokens, the least that a part may be, and what it is until the steps' cost is known.
LEAST, UNKNOWN = 1 / 16, 1 / 2


class StepShares:
    """Divides one step after the other. ``prefetch_step``: most tokens for prefetches, None for half of a step.

    While others decode or wait, all cold prompts together get at most a part, not in two steps in a row, since what
    arrives meanwhile may have to wait for the step behind, too; and nothing in a step in which a resume is prefilled,
    unless they got nothing three times. More than two cold prompts hold up each other: they get half of
    every step. A prompt of which no more is left than what the step takes without it counts
    as everybody else's work. Where cold prompts take half of the engine's time they get whole steps.
    """

    def __init__(self, prefetch_step: int | None) -> None:
        self.cost = PrefillCost()
        self.load = ColdLoad()
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
        """Whether anybody decodes or waits who could be held up by a cold prompt, and the engine has time for parts."""
        return (self._resumes or self._decoding > 0) and self.load.share < BUSY

    def open(
        self,
        *,
        waiting: Sequence[str],
        prefilling: Sequence[str],
        decoding: int,
        is_resume: Callable[[str], bool],
        step_tokens: int,
        now: float,
    ) -> None:
        """Begin a step at ``now``, engine seconds; prefetches get nothing while others wait.

        Prefetches apart, ``waiting`` are to start, first in line first, ``prefilling`` are in the middle of their
        prompts, and so many sequences are ``decoding``.
        """
        share = max(1, step_tokens // 2) if self._prefetch_step is None else self._prefetch_step
        self._prefetch = 0 if waiting else share
        self._passed = self._passed + 1 if self._asked and not self._given else 0
        self._rests, self._given, self._asked = self._given, False, False
        cold = [name for name in (*waiting, *prefilling) if not is_resume(name)]
        self.load.look(cold, now)
        resumes = len(waiting) + len(prefilling) - len(cold)
        # A cold prompt that may be passed no more keeps whoever stands behind it waiting.
        first_in_line = bool(waiting) and not is_resume(waiting[0]) and any(map(is_resume, waiting))
        self._resumes, self._decoding, self._step_tokens = resumes > 0, decoding, step_tokens
        self._crowd = len(cold) > CROWD or first_in_line
        self._part = None

    def planned(self, step: object, rows: Iterable[tuple[str, int]], now: float) -> None:
        """``step`` is to compute so many tokens for each of these requests."""
        rows = tuple(rows)
        self.cost.planned(step, (tokens for _, tokens in rows), now)
        if cold := sum(tokens for name, tokens in rows if tokens > 1 and name in self.load):
            self.load.computed(self.cost.seconds(cold))

    def ended(self, step: object, now: float) -> None:
        """``step`` has been computed."""
        self.cost.ended(step, now)

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
