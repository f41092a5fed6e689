"""What is in an engine, and what its steps take: learnt from the requests of its clients."""

from agentkv.follow.cost import GUESS, RANGE, Load, StepTimes
from agentkv.kv import LeastSquares

__all__ = ("Meter", "Metered")

# First tokens that arrive so close to each other came out of one step, in seconds.
ONE_STEP = 0.001
# Fewer steps than this say more about how tokens are delivered than about how long they take.
STEPS_LEAST = 4
# An observation counts for half behind this many others.
HALF_LIFE = 200


class Meter:
    """Counts requests in the engine and fits ``times`` to how long they took. Times are clock seconds.

    Over the time in which a generation decodes, its steps, those who decoded beside it, and what was prefilled
    meanwhile are known; together they must take that time. What runs alone is an observation, too.
    """

    def __init__(self) -> None:
        self.load = Load()
        self._prefetches = 0
        self._since = 0.0
        # Integrals up to now: of the generations that decode over time, of steps with prefill, of tokens prefilled.
        self._decoded = self._launches = self._tokens = 0.0
        self._launched_at = float("-inf")
        guesses, ranges = (
            (times.base_s, times.decode_seq_s, times.launch_s, times.token_s) for times in (GUESS, RANGE)
        )
        self._fit = LeastSquares(guesses, ranges, memory=0.5 ** (1 / HALF_LIFE))
        self._times: StepTimes | None = GUESS

    @property
    def times(self) -> StepTimes:
        """What steps take, by what was seen so far."""
        if self._times is None:
            base, seq, launch, token = self._fit.solve()
            self._times = StepTimes(base_s=base, decode_seq_s=seq, launch_s=launch, token_s=token)
        return self._times

    def generation(self, now: float, tokens: int, *, held: bool = False) -> "Metered":
        """A generation is asked for that is expected to compute ``tokens`` of its prompt.

        ``held``: not before its run is admitted. It is no load until its first token, and says nothing of steps.
        """
        metered = Metered(self, now, tokens, alone=self._idle() and not held, asked=not held)
        self.change(now, asked=metered.asked)
        return metered

    def prefetch(self, now: float, tokens: int) -> "Metered":
        """A prefetch of ``tokens`` is sent."""
        metered = Metered(self, now, tokens, alone=self._idle(), asked=False)
        self._prefetches += 1
        return metered

    def prefetched(self) -> None:
        """A prefetch is over."""
        self._prefetches -= 1

    def change(self, now: float, *, asked: int = 0, decoding: int = 0) -> None:
        """So many more, or fewer, are asked for and decode from ``now`` on."""
        self._decoded += self.load.decoding * (now - self._since)
        self._since = now
        self.load = Load(asked=self.load.asked + asked, decoding=self.load.decoding + decoding)

    def prefilled(self, now: float, tokens: int) -> None:
        """So many tokens were prefilled in a step that ended ``now``."""
        self._tokens += tokens
        if now - self._launched_at > ONE_STEP:
            self._launches += 1
        self._launched_at = now

    def sums(self, now: float) -> tuple[float, float, float]:
        """The integrals up to ``now``."""
        return self._decoded + self.load.decoding * (now - self._since), self._launches, self._tokens

    def observe(self, steps: float, decoding: float, launches: float, tokens: float, seconds: float) -> None:
        """Note that steps with this work in them took ``seconds``."""
        if seconds > 0:
            self._fit.add((steps, decoding, launches, tokens), seconds)
            self._times = None

    def _idle(self) -> bool:
        return self.load == Load() and not self._prefetches


class Metered:
    """One request on its way, which ``asked`` counts until its first token. ``close`` it, whatever becomes of it."""

    def __init__(self, meter: Meter, now: float, tokens: int, *, alone: bool, asked: bool) -> None:
        self.asked = int(asked)
        self._meter, self._sent_at, self._tokens, self._alone = meter, now, tokens, alone
        self._first_at: float | None = None
        self._before = meter.sums(now)

    def first(self, now: float) -> None:
        """The generation's first token is there."""
        self._note_prefill(now, self._tokens)
        self._first_at = now
        self._meter.change(now, asked=-self.asked, decoding=1)
        self._before = self._meter.sums(now)

    def hold(self, now: float) -> None:
        """The generation is held: its run was paused before it began."""
        if self._first_at is None:
            self._meter.change(now, asked=-self.asked)
            self.asked, self._alone = 0, False

    def computed(self, now: float, tokens: int) -> None:
        """The prefetch is done and has computed ``tokens``."""
        self._note_prefill(now, tokens)

    def done(self, now: float, generated: int) -> None:
        """The generation ended with ``generated`` tokens in all."""
        if self._first_at is None or generated <= STEPS_LEAST:
            return
        steps, seconds = generated - 1, now - self._first_at
        decoded, launches, tokens = (b - a for a, b in zip(self._before, self._meter.sums(now), strict=True))
        if seconds > 0:
            self._meter.observe(steps, steps * decoded / seconds, launches, tokens, seconds)

    def close(self, now: float) -> None:
        """The generation is no longer in the engine."""
        if self._first_at is None:
            self._meter.change(now, asked=-self.asked)
        else:
            self._meter.change(now, decoding=-1)

    def _note_prefill(self, now: float, tokens: int) -> None:
        decoded, launches, _ = (b - a for a, b in zip(self._before, self._meter.sums(now), strict=True))
        if self._alone and not decoded and not launches:
            self._meter.observe(1, 1, bool(tokens > 1), tokens, now - self._sent_at)
        self._meter.prefilled(now, tokens)
