"""The contract between the runtime and whatever computes tokens.

An engine takes token ids and gives token ids; text, templates and tools are not its business. All times
are seconds on the engine's own ``clock``, which the runtime uses for everything it times.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

import anyio
from attrs import field, frozen

from agentkv.errors import EngineError
from agentkv.kv import Directive, Grant

__all__ = (
    "Clock",
    "Delta",
    "Engine",
    "EngineInfo",
    "FinishReason",
    "GenerateRequest",
    "PrefillRequest",
    "Receipt",
    "Sampling",
    "Usage",
)

FinishReason = Literal["stop", "length"]


@frozen(kw_only=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy. ``seed`` makes a sampled request repeatable."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@frozen(kw_only=True)
class GenerateRequest:
    """One generation.

    ``token_ids`` is the whole prompt (at least one id). ``constraint`` is a structural tag in the JSON form
    that vLLM's ``StructuredOutputsParams(structural_tag=...)`` takes, or None for free text. Generation
    ends at any id of ``stop_token_ids`` (that id is the last one returned) or at ``max_tokens``; the first
    ``min_tokens`` never end it. Raises ``EngineError`` where ``min_tokens`` is above ``max_tokens``.
    ``cache_salt`` separates tenants: KV is shared only under an equal salt. ``reuse=False`` asks that no
    cached KV be read. ``request_id`` is unique per engine. ``tag`` names run and node, for reports only.
    ``directive`` places the request in its run and asks for a lease at its end; an engine without leases
    takes no notice of it and says so in ``info.capabilities``.
    ``forced`` are the ids that the model is made to say, ``max_tokens`` of them, whatever it would have said;
    an engine without ``forcing`` in ``info.capabilities`` refuses them.
    Raises ``EngineError`` for ``forced`` ids of another number, or beside a ``constraint``.
    """

    request_id: str
    token_ids: list[int]
    max_tokens: int
    min_tokens: int = 0
    sampling: Sampling = Sampling()
    stop_token_ids: tuple[int, ...] = ()
    constraint: str | None = None
    cache_salt: str | None = None
    reuse: bool = True
    tag: str = ""
    directive: Directive | None = None
    forced: tuple[int, ...] | None = None

    def __attrs_post_init__(self) -> None:
        if self.forced is not None and (len(self.forced) != self.max_tokens or self.constraint is not None):
            raise EngineError(
                f"request {self.request_id!r} forces {len(self.forced)} ids with max_tokens={self.max_tokens}; give "
                "as many as max_tokens, and no constraint"
            )
        if self.min_tokens > self.max_tokens:
            raise EngineError(
                f"request {self.request_id!r} has min_tokens={self.min_tokens}, above max_tokens={self.max_tokens}"
            )


@frozen(kw_only=True)
class Usage:
    """What a request cost, in tokens, as the engine itself counts it. ``computed`` = prompt − cached.

    ``queue_s`` is how long the request waited in the engine until it was first scheduled, ``prefill_s`` how
    long from there to its first token; None where the engine does not say.
    """

    prompt: int
    cached: int
    generated: int = 0
    queue_s: float | None = None
    prefill_s: float | None = None

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


@frozen(kw_only=True)
class Delta:
    """New token ids. The last delta of a request has ``finish`` and ``usage``; ``at`` is the clock's time.

    ``grant`` is the lease that the request's directive took at its end, on the last delta.
    """

    token_ids: tuple[int, ...]
    at: float
    finish: FinishReason | None = None
    usage: Usage | None = None
    grant: Grant | None = None


@frozen(kw_only=True)
class PrefillRequest:
    """Compute and cache the KV of ``token_ids``; nothing is generated for the caller.

    Only whole blocks stay cached, so ask for a multiple of ``EngineInfo.block_size``. A prefetch that the
    engine gives up raises ``EngineError``.
    """

    request_id: str
    token_ids: list[int]
    cache_salt: str | None = None
    tag: str = ""
    directive: Directive | None = None


@frozen(kw_only=True)
class Receipt:
    """What a prefill did: of ``prompt`` tokens ``cached`` were there already. Times are clock seconds.

    ``grant`` is the lease that its directive took.
    """

    prompt: int
    cached: int
    sent_at: float
    done_at: float
    grant: Grant | None = None

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


@frozen(kw_only=True)
class EngineInfo:
    """What is known about a started engine.

    ``engine_id`` is unique to this start; ``epoch`` counts cache resets within it. ``pool_blocks`` is the
    number of usable KV blocks, or None where the engine does not say; ``kv_bytes_per_token`` likewise.
    ``max_num_batched_tokens`` and ``max_num_seqs`` are what one step may hold, or None likewise.
    ``model_path`` is a folder with ``tokenizer.json`` and a chat template. ``capabilities`` maps each
    capability's name to what is in force (``"on"``) or why it is not; ``doctor`` prints it.
    """

    name: str
    engine_id: str
    model: str
    model_path: str
    block_size: int
    max_model_len: int
    pool_blocks: int | None = None
    kv_bytes_per_token: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    epoch: int = 0
    version: str = ""
    capabilities: Mapping[str, str] = field(factory=dict)


class Clock(Protocol):
    """Time as the engine sees it: the machine's monotonic clock, or a simulated one."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never decreases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock."""
        ...

    def deadline(self, seconds: float | None) -> AbstractAsyncContextManager[anyio.CancelScope]:
        """Cancel the body after ``seconds`` of this clock (None: never).

        ``scope.cancelled_caught`` tells afterwards whether that happened.
        """
        ...

    def busy(self) -> AbstractAsyncContextManager[None]:
        """While the body runs, real work is in progress: a simulated clock stands still."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Contract of every engine.

    Closing a generator of ``generate`` early, or cancelling ``prefill``, aborts the request in the engine
    before anything sent later is looked at: what was computed stays cached, and a request sent right behind
    finds it. Failures are raised as ``EngineError``; after ``aclose`` everything raises ``EngineUnavailable``.
    """

    @property
    def info(self) -> EngineInfo: ...

    @property
    def clock(self) -> Clock: ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Stream one generation. At least one delta is yielded; the last carries ``finish`` and ``usage``.

        Close it (``contextlib.aclosing``) when leaving it early: that is what aborts the request.
        """
        ...

    async def prefill(self, request: PrefillRequest) -> Receipt:
        """Compute the KV of ``request.token_ids`` and leave it in the cache."""
        ...

    async def kv(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Do an operation on leases and runs: those of ``agentkv.kv.operations``, in and out as JSON objects.

        ``{"error": why}`` where the engine does not manage KV or cannot do it; ``info.capabilities`` has
        ``"leases"`` and ``"admission"`` set to ``"on"`` where it can.
        """
        ...

    async def stats(self) -> dict[str, Any]:
        """Counters of the engine as a JSON-compatible dict.

        Always has ``running`` and ``waiting`` (requests now in the engine), ``prompt_tokens``,
        ``cached_tokens`` and ``computed_tokens`` (sums since start).
        """
        ...

    @property
    def started(self) -> bool:
        """Whether the engine was entered and is not closed yet."""
        ...

    async def __aenter__(self) -> Self:
        """Start the engine. Raises ``EngineStartError``. ``info`` and ``clock`` are valid from here on."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """``aclose``."""
        ...

    async def aclose(self) -> None:
        """Stop the engine and free what it holds. Calling it twice is harmless."""
        ...
