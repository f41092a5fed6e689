"""When prefetches go to an engine: those of all its runs together, as its load allows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from attrs import define, frozen

from agentkv.config import KVConfig, TransferMode
from agentkv.engines.base import Engine
from agentkv.follow import Arrivals, Load, Meter, Metered, StepTimes, follows, most_at_once, next_prefill, pays
from agentkv.report import LeftOut

__all__ = ("Generating", "Pace", "Prefetching")

# Most tokens of a prefetch on an engine that does not say how many a step may hold.
STEP_GUESSED = 256
# Seconds after which one of those who wait looks again though nothing has happened: the longer nobody asks, the more
# may go at once. Tools take a few times as long at least where there is time to prefill ahead.
LOOK_AGAIN = 0.1


@define
class _Offer:
    missing: int
    step: int
    taken: anyio.Event
    tokens: int = 0


class Pace:
    """Knows the load that a runtime puts on its engine, and holds prefetches back while they would hurt.

    What waits is offered together: many small prefetches that are not worth a step each can be worth one step. What
    goes together is one step that whoever asks meanwhile may have to wait for, and is bounded as such.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._meter = Meter()
        self._arrivals = Arrivals()
        self._offers: dict[int, _Offer] = {}
        self._offered = self._count = 0
        # Tokens that may go or have gone to the engine, of prefetches that are not over.
        self._booked = 0

    @property
    def load(self) -> Load:
        """What is in the engine now."""
        return self._meter.load

    @property
    def times(self) -> StepTimes:
        """What the engine's steps take, as far as is known."""
        return self._meter.times

    def step(self, config: KVConfig) -> int:
        """Most tokens of one prefetch: what ``config`` says, or half of an engine step: a resume waits for it."""
        most = self._engine.info.max_num_batched_tokens
        return config.prefetch_step or (STEP_GUESSED if most is None else max(1, most // 2))

    def unwanted(self, mode: TransferMode, known: int, missing: int) -> LeftOut | None:
        """Why ``missing`` of a chain's ``known`` tokens are not to be prefilled in ``mode``; None if they are to be."""
        if not follows(mode, known):
            return "short"
        return "little" if mode == "auto" and not pays(self.load, self.times, missing) else None

    async def ready(self, missing: int, step: int) -> int:
        """Wait until it is worth prefilling ``missing`` tokens; returns how many of them, at most ``step``, go now.

        Tell ``over`` when they have been prefilled, or will not be.
        """
        if tokens := self._next(self.load, missing, step, self._offered):
            self._booked += tokens
            # The others ride along: what they cost is paid already.
            self._release()
            return tokens
        self._count += 1
        number, offer = self._count, _Offer(missing, step, anyio.Event())
        self._offers[number] = offer
        self._offered += missing
        try:
            await self._until_taken(offer)
        except BaseException:
            self.over(offer.tokens)
            raise
        finally:
            self._withdraw(number)
        return offer.tokens

    async def _until_taken(self, offer: _Offer) -> None:
        while not offer.taken.is_set():
            # Together they look so often, however many they are.
            async with self._engine.clock.deadline(LOOK_AGAIN * len(self._offers)):
                await offer.taken.wait()
            self._look()

    def over(self, tokens: int) -> None:
        """So many tokens that were to go are no longer in the engine, whatever became of them."""
        if tokens:
            self._booked -= tokens
            self._look()

    @contextmanager
    def generation(self, tokens: int, *, held: bool = False) -> Iterator["Generating"]:
        """While the body runs, a generation is in the engine that is expected to compute ``tokens`` of its prompt.

        ``held``: its run waits for admission. Nobody can be in its way meanwhile, which may be long.
        """
        now = self._engine.clock.now()
        if not held:
            self._arrivals.add(now)
        metered = self._meter.generation(now, tokens, held=held)
        try:
            yield Generating(metered, self._engine.clock.now, self._look)
        finally:
            metered.close(self._engine.clock.now())
            self._look()

    @contextmanager
    def prefetch(self, tokens: int) -> Iterator["Prefetching"]:
        """While the body runs, a prefetch of ``tokens`` is in the engine."""
        metered = self._meter.prefetch(self._engine.clock.now(), tokens)
        try:
            yield Prefetching(metered, self._engine.clock.now)
        finally:
            self._meter.prefetched()

    def _look(self) -> None:
        offer = next(iter(self._offers.values()), None)
        if offer is not None and self._next(self.load, offer.missing, offer.step, self._offered - offer.missing):
            self._release()

    def _release(self) -> None:
        for number, offer in tuple(self._offers.items()):
            offer.tokens = self._next(Load(), offer.missing, offer.step, 0)
            if not offer.tokens:
                break
            self._booked += offer.tokens
            offer.taken.set()
            self._withdraw(number)

    def _next(self, load: Load, missing: int, step: int, offered: int) -> int:
        block, gap = self._engine.info.block_size, self._arrivals.gap(self._engine.clock.now())
        room = most_at_once(self.load, self.times, gap, most=step) - self._booked
        if self._booked and room < block:
            return 0
        return next_prefill(load, self.times, missing, block=block, step=max(room, block), offered=offered)

    def _withdraw(self, number: int) -> None:
        if (offer := self._offers.pop(number, None)) is not None:
            self._offered -= offer.missing


@frozen
class Generating:
    """A generation in the engine, for who sent it to tell how it goes."""

    _metered: Metered
    _now: Callable[[], float]
    _look: Callable[[], None]

    def first(self) -> None:
        """Its first token is there."""
        self._metered.first(self._now())
        self._look()

    def hold(self) -> None:
        """Its run was paused, and has it wait for room that others must leave."""
        self._metered.hold(self._now())
        self._look()

    def done(self, generated: int) -> None:
        """It has ended, with ``generated`` tokens."""
        self._metered.done(self._now(), generated)


@frozen
class Prefetching:
    """A prefetch in the engine, likewise."""

    _metered: Metered
    _now: Callable[[], float]

    def done(self, computed: int) -> None:
        """It has ended and computed ``computed`` tokens."""
        self._metered.computed(self._now(), computed)
