"""The account of every prompt token: where its KV came from, or why it had to be computed.

Only the ledger reads what the engine reports. The prediction is made before the request is sent; the
engine's own count decides.
"""

from collections.abc import Sequence
from typing import Literal

from attrs import field, frozen

from agentkv.engines.base import Receipt, Usage
from agentkv.report.residency import BlockFate, Residency

__all__ = ("Ask", "Ledger", "LeftOut", "Source", "Step", "Totals")

#: Why what is known of a prompt is not prefilled: in "auto" mode the prompt is too short, or too little of the wait
#: would be saved; no step was spared for it before it was asked for; ``branch_prefetch_limit`` is 0; or the engine
#: refused a place to who was to read it.
LeftOut = Literal["short", "little", "late", "limit", "refused"]


@frozen(kw_only=True)
class Ask:
    """One prompt about to be sent. ``keys`` are its full blocks' keys; token counts from the chain's start.

    ``known`` tokens were known before it could be asked, ``diverged_at`` is where it leaves the chain's
    former rendering (None: nowhere), ``adopted`` says that a prefetch of it was cut off in flight. ``branch`` is empty
    on the main chain. ``fates`` are those of the blocks when it was asked, None for those when it is booked.
    """

    node: str
    visit: int
    agent: str
    prompt: int
    known: int
    keys: Sequence[bytes]
    predicted: int
    adopted: bool = False
    diverged_at: int | None = None
    branch: str = ""
    fates: Sequence[BlockFate] | None = None


@frozen(kw_only=True)
class Step:
    """A generation's account, in tokens: the nine parts from ``resident`` to ``salted`` add up to ``prompt``.

    ``resident``: cached by earlier generations. ``prefilled``: prefilled ahead and used. Computed between ask
    and first token, by cause: ``new`` not knowable before the ask; ``tail`` less than a block; ``cold`` never
    seen by this engine; ``evicted`` seen but gone; ``diverged`` rewritten by the template; ``salted`` seen
    under another salt only. ``uncached`` were read anew on request (``kv_transfer_mode="off"``).
    """

    node: str
    visit: int
    agent: str
    prompt: int
    cached: int
    predicted: int
    adopted: bool
    generated: int
    resident: int = 0
    prefilled: int = 0
    new: int = 0
    tail: int = 0
    cold: int = 0
    evicted: int = 0
    diverged: int = 0
    salted: int = 0
    uncached: int = 0
    branch: str = ""

    @property
    def computed(self) -> int:
        """Tokens computed between the ask and the first token."""
        return self.prompt - self.cached


@frozen(kw_only=True)
class Source:
    """Tokens ``prefetched``, and of all prefilled those ``used``, whose text came from ``name``.

    That is what was ``"certain"``, a ``"stream"`` still arriving, a guess (``"memo"``, ``"poll"`` or ``"hook"``), or
    the prompt of a ``"next"`` step, which may never be asked.
    """

    name: str
    prefetched: int
    used: int


@frozen(kw_only=True)
class Totals:
    """Sums of a run, in tokens.

    ``prefetched`` were computed ahead, ``aborted`` is the most that prefetches cut off in flight may have
    computed besides; ``wasted`` of both were not used. ``upkeep`` were computed by requests that only take leases.
    """

    prompt: int
    cached: int
    computed: int
    generated: int
    prefetched: int
    prefetched_used: int
    aborted: int
    wasted: int
    upkeep: int = 0

    @property
    def reduction_critical(self) -> float:
        """1 − tokens computed between ask and first token ÷ prompt tokens."""
        return 1 - self.computed / self.prompt if self.prompt else 0.0

    @property
    def reduction_total(self) -> float:
        """1 − every computed token, prefetches and aborted work included, ÷ prompt tokens."""
        spent = self.computed + self.prefetched + self.aborted + self.upkeep
        return 1 - spent / self.prompt if self.prompt else 0.0


@frozen(kw_only=True)
class _Parts:
    counts: dict[str, int] = field(factory=dict)

    def add(self, part: str, tokens: int) -> None:
        if tokens > 0:
            self.counts[part] = self.counts.get(part, 0) + tokens


class Ledger:
    """One run's account. Shares ``residency`` with all runs on the engine; ``reuse`` False reads no cache."""

    def __init__(self, run_id: str, residency: Residency, salt: str | None, *, reuse: bool = True) -> None:
        self.steps: list[Step] = []
        self._run_id = run_id
        self._residency = residency
        self._salt = salt
        self._reuse = reuse
        self._prefetched = self._used = self._aborted = self._upkeep = 0
        self._left_out: dict[LeftOut, int] = {}
        self._by_source: dict[str, int] = {}
        self._used_by_source: dict[str, int] = {}
        self._source_of: dict[bytes, str] = {}
        # Blocks of prompts whose generation has begun and is not booked yet.
        self._arrived: set[bytes] = set()

    def predict(self, keys: Sequence[bytes], prompt: int) -> int:
        """Tokens of the prompt that the engine should find cached."""
        return self._residency.hit(self._salt, keys, prompt, self._arrived) if self._reuse else 0

    def resident(self, keys: Sequence[bytes]) -> int:
        """Tokens at the chain's start believed cached."""
        return self._residency.resident(self._salt, keys, self._arrived)

    def fates(self, keys: Sequence[bytes]) -> tuple[BlockFate, ...]:
        """What became of the blocks so far."""
        return tuple(self._residency.fate(self._salt, key) for key in keys)

    def arrived(self, keys: Sequence[bytes]) -> None:
        """Note that the KV of a prompt is there, whose generation goes on; ``keys`` are its full blocks'."""
        self._arrived.update(keys)

    def generated(self, ask: Ask, usage: Usage, keys_after: Sequence[bytes]) -> Step:
        """Book a generation. ``keys_after`` are the blocks of prompt and output that now have KV."""
        hit = usage.cached // self._residency.block_size
        parts = self._hit(ask, usage.cached)
        self._residual(ask, usage.cached, parts)
        self._residency.touch(self._salt, ask.keys[:hit], self._run_id)
        self._residency.mark(self._salt, keys_after[hit:], "generation", self._run_id)
        self._arrived.difference_update(ask.keys)
        step = Step(
            node=ask.node,
            visit=ask.visit,
            agent=ask.agent,
            prompt=ask.prompt,
            cached=usage.cached,
            predicted=ask.predicted,
            adopted=ask.adopted,
            generated=usage.generated,
            branch=ask.branch,
            **parts.counts,
        )
        self.steps.append(step)
        return step

    def _hit(self, ask: Ask, cached: int) -> _Parts:
        parts, block = _Parts(), self._residency.block_size
        for start in range(0, cached, block):
            tokens = min(block, cached - start)
            key = ask.keys[start // block]
            adopted = ask.adopted and self._fate(ask, start // block) != "seen"
            owner = self._residency.use(self._salt, key)
            if owner is not None or adopted:
                parts.add("prefilled", tokens)
            else:
                parts.add("resident", tokens)
            if owner == self._run_id or adopted:
                self._used += tokens
                source = self._source_of.get(key, "certain")
                self._used_by_source[source] = self._used_by_source.get(source, 0) + tokens
        return parts

    def _fate(self, ask: Ask, index: int) -> BlockFate:
        return self._residency.fate(self._salt, ask.keys[index]) if ask.fates is None else ask.fates[index]

    def _residual(self, ask: Ask, cached: int, parts: _Parts) -> None:
        if not self._reuse:
            parts.add("uncached", ask.prompt)
            return
        block = self._residency.block_size
        for start in range(cached, ask.prompt, block):
            end = min(start + block, ask.prompt)
            self._block_residual(ask, start, end, parts, first=start == cached)

    def _block_residual(self, ask: Ask, start: int, end: int, parts: _Parts, *, first: bool) -> None:
        block = self._residency.block_size
        full = end % block == 0 and end // block <= len(ask.keys)
        fate = self._fate(ask, start // block) if full else "unseen"
        if fate == "seen":
            # The last block of an aligned prompt is computed even when it is cached: that is no eviction.
            parts.add("tail" if first and end == ask.prompt else "evicted", end - start)
            return
        if fate == "salted":
            parts.add("salted", end - start)
            return
        before = max(0, min(end, ask.known) - start)
        parts.add("new", end - start - before)
        if end > ask.known or not full:
            parts.add("tail", before)
        elif ask.diverged_at is not None and start >= ask.diverged_at // block * block:
            parts.add("diverged", before)
        else:
            parts.add("cold", before)

    def prefetching(self, keys: Sequence[bytes], source: str) -> None:
        """Note that the blocks ``keys`` are being prefilled, and where their text came from."""
        self._source_of.update(dict.fromkeys(keys, source))

    def prefetched(self, keys: Sequence[bytes], receipt: Receipt, source: str = "certain") -> None:
        """Book a prefetch that ended; ``keys`` are its blocks, ``source`` says where the text of these came from."""
        hit = receipt.cached // self._residency.block_size
        self._residency.touch(self._salt, keys[:hit], self._run_id)
        self._residency.mark(self._salt, keys[hit:], "prefetch", self._run_id)
        self._prefetched += receipt.computed
        self._by_source[source] = self._by_source.get(source, 0) + receipt.computed

    def keeping(self, receipt: Receipt) -> None:
        """Book a request that was sent for the lease it takes, not for what it computes."""
        self._upkeep += receipt.computed

    def aborted(self, tokens: int) -> None:
        """Book a prefetch cut off in flight: at most ``tokens`` were computed for it."""
        self._aborted += tokens

    def left_out(self, why: LeftOut, tokens: int) -> None:
        """Note that ``tokens`` in whole blocks are known ahead and not prefilled."""
        self._left_out[why] = max(tokens, self._left_out.get(why, 0))

    @property
    def most_left_out(self) -> LeftOut | None:
        """Why the most that was known ahead at once was not prefilled; None if nothing was left out."""
        return max(self._left_out, key=self._left_out.__getitem__, default=None)

    def totals(self) -> Totals:
        """The sums so far."""
        prompt, cached = sum(s.prompt for s in self.steps), sum(s.cached for s in self.steps)
        spent = self._prefetched + self._aborted
        return Totals(
            prompt=prompt,
            cached=cached,
            computed=prompt - cached,
            generated=sum(s.generated for s in self.steps),
            prefetched=self._prefetched,
            prefetched_used=self._used,
            aborted=self._aborted,
            wasted=max(0, spent - self._used),
            upkeep=self._upkeep,
        )

    def sources(self) -> tuple[Source, ...]:
        """What was prefilled ahead, by where its text came from."""
        names = dict.fromkeys((*self._by_source, *self._used_by_source))
        return tuple(
            Source(name=name, prefetched=self._by_source.get(name, 0), used=self._used_by_source.get(name, 0))
            for name in names
        )
