"""One request inside the simulated engine: its tokens, its blocks, and how far it has come."""

from collections.abc import Sequence

from agentkv.engines.base import FinishReason
from agentkv.engines.sim_cache import Block, BlockPool, KeyChain
from agentkv.kv import Directive, Grant

__all__ = ("SimRequest",)


class SimRequest:
    """The state of one request. The times are the engine's to set: seconds of its clock.

    ``output`` is what it is going to generate (known beforehand, as a simulator's model is a script) and
    ``finish`` how that ends. ``length`` counts the prompt and what was generated so far, ``computed`` the
    tokens with KV, steps in flight included, and ``expected`` what ``length`` will be once those are done.
    ``in_prefill``: its latest step ended in the middle of its prompt, or of what it recomputes.
    ``grant`` is the lease that ``directive`` took at the end.
    """

    __slots__ = (
        "_keyed",
        "_keys",
        "alive",
        "blocks",
        "cached",
        "computed",
        "directive",
        "expected",
        "finish",
        "first_at",
        "grant",
        "in_prefill",
        "length",
        "output",
        "prompt",
        "queued_at",
        "request_id",
        "reuse",
        "started_at",
    )

    def __init__(
        self,
        request_id: str,
        prompt: Sequence[int],
        output: Sequence[int],
        finish: FinishReason,
        *,
        block_size: int,
        salt: str | None = None,
        reuse: bool = True,
        directive: Directive | None = None,
    ) -> None:
        self.request_id = request_id
        self.prompt = len(prompt)
        self.output = output
        self.finish = finish
        self.reuse = reuse
        self.directive = directive
        self.grant: Grant | None = None
        self.length = self.prompt
        self.expected = self.prompt
        self.computed = 0
        self.in_prefill = False
        self.cached: int | None = None
        self.blocks: list[Block] = []
        self.alive = True
        self.queued_at = 0.0
        self.started_at: float | None = None
        self.first_at: float | None = None
        self._keys = KeyChain([*prompt, *output], block_size, salt)
        self._keyed = 0

    @property
    def generated(self) -> int:
        """How many tokens were generated so far."""
        return self.length - self.prompt

    @property
    def finished(self) -> bool:
        """Whether all of the output was generated."""
        return self.generated == len(self.output)

    @property
    def to_compute(self) -> int:
        """Tokens that steps have still to compute; the last one generated is never computed."""
        return min(self.expected, self.prompt + len(self.output) - 1) - self.computed

    def full_blocks(self, block_size: int) -> list[Block]:
        """Its first blocks that are computed and can be hit, in order."""
        return self.blocks[: min(self._keyed, self.computed // block_size)]

    def keys(self, block_size: int) -> list[bytes]:
        """The content keys of the full blocks that it could start on."""
        return self._keys.first((self.length - 1) // block_size if self.reuse else 0)

    def find_cached(self, pool: BlockPool, block_size: int) -> list[Block]:
        """The longest run of cached blocks this request can start on.

        At least one token is left to compute, since only computing a token gives the next one's logits.
        """
        found: list[Block] = []
        for key in self.keys(block_size):
            block = pool.find(key)
            if block is None:
                break
            found.append(block)
        return found

    def adopt(self, hits: list[Block], block_size: int) -> None:
        """Start on ``hits``. The first time says what the request found; a restart after preemption does not."""
        self.blocks = hits
        self._keyed = len(hits)
        self.computed = len(hits) * block_size
        if self.cached is None:
            self.cached = self.computed

    def enter_full(self, pool: BlockPool, tokens: int, block_size: int) -> None:
        """Make the blocks that are full at ``tokens`` findable, before they are computed, as vLLM does.

        Not those with a token that a step in flight has yet to sample: what is not known has no key.
        """
        full = min(tokens, self.length) // block_size
        while self._keyed < full:
            pool.enter(self.blocks[self._keyed], self._keys[self._keyed])
            self._keyed += 1

    def give_up_blocks(self, pool: BlockPool) -> None:
        """Free all blocks, the tail first in line for eviction: a prefix is worth more than what follows it."""
        pool.release(reversed(self.blocks))
        self.blocks = []
        self._keyed = 0
        self.computed = 0
