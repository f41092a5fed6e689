"""What users and operators can set: the limits of a run, a client's KV policy, an engine's KV policy."""

from typing import Literal, get_args

from attrs import field, frozen, validators

from agentkv.bounds import number, one_of, share, truth, whole
from agentkv.errors import NotSupported

__all__ = ("MANAGED", "EngineKV", "KVConfig", "Limits", "TransferMode")

TransferMode = Literal["auto", "off", "prefix", "bidirectional"]


@frozen(kw_only=True)
class Limits:
    """Bounds of one run, its branches included; passing one ends the run with ``LimitExceeded``.

    ``steps`` counts generations, ``tool_calls`` counts calls, ``tokens`` counts generated tokens, ``seconds`` is the
    run's wall-clock time on the runtime's clock. A generation gets no more ``tokens`` than are left: an answer that is
    cut off so ends the run as one that is not ``complete``. Raises ``SetupError`` naming the field that is
    out of its bounds or of another type.
    """

    steps: int = field(default=50, validator=whole(least=1))
    tool_calls: int = field(default=200, validator=whole(least=0))
    tokens: int = field(default=100_000, validator=whole(least=1))
    seconds: float = field(default=3600.0, validator=number(above=0))


@frozen(kw_only=True)
class KVConfig:
    """A client's KV policy.

    ``kv_transfer_mode``: ``"off"`` asks the engine not to reuse cached KV at all, ``"prefix"`` relies on the
    engine's prefix cache alone (one way), ``"bidirectional"`` also prefills ahead while tools run, as far as
    the load allows, ``"auto"`` does so where it shortens the wait by enough to be worth a request.
    ``anchor_ttl``: seconds that an agent's instructions and tools stay leased after its last run has ended.
    ``prefetch_step``: most tokens that one prefetch request may ask the engine to compute, None for half of what
    a step of the engine holds; a prefetch is a series of such steps, so that a resume never waits behind more
    than one.
    ``branch_prefetch_limit``: prefetches of one run that may be in the engine at once; 0 prefills nothing ahead.
    ``transfer_sync_level``: 0 sends a resume without waiting for the abort of its chain's prefetch, 1 adopts the
    prefetch (aborts it, then follows right behind), 2 waits until its step is done.
    ``predict_results``: guess what a ``read_only`` tool will give by what it gave in this run (``"run"``), or in any
    run of the runtime by the same agent for the same tenant (``"agent"``), and prefill that while the tool runs.
    ``memo_bytes``: most text that is remembered for this, per agent and tenant.
    """

    kv_transfer_mode: TransferMode = field(default="auto", validator=one_of(*get_args(TransferMode)))
    prefetch_step: int | None = field(default=None, validator=validators.optional(whole(least=1)))
    anchor_ttl: float = field(default=60.0, validator=number(above=0, most=3600))
    branch_prefetch_limit: int = field(default=8, validator=whole(least=0))
    transfer_sync_level: Literal[0, 1, 2] = field(default=1, validator=one_of(0, 1, 2))
    predict_results: Literal["off", "run", "agent"] = field(default="run", validator=one_of("off", "run", "agent"))
    memo_bytes: int = field(default=4_000_000, validator=whole(least=0))
    allow_shifted_splice: bool = field(default=False)

    def __attrs_post_init__(self) -> None:
        _refuse_unbuilt(self, allow_shifted_splice=False)


@frozen(kw_only=True)
class EngineKV:
    """An operator's KV policy, one per engine.

    ``kv_pool_ratio``: share of the pool's blocks that leases may hold; admitted runs may plan the whole pool.
    ``prefix_cache_mode``: ``"hybrid"`` keeps leased KV in the one eviction order, ``"independent"`` takes no
    leases. ``admission``: ``"auto"`` starts only runs whose working set fits, ``"none"`` starts everything.
    ``peak_ratio``: share of the pool that admitted runs may be expected to fill at their fullest moment, where they
    do not all fit at their largest; less than 1 leaves a margin for runs that grow unlike the others or outgrow what
    they declared, 0 starts only runs that fit at their largest all at once.
    ``max_queued``: runs that may wait in line at once; one more is refused (``AdmissionRefused``).
    ``cpu_tier_bytes``: host memory for the KV of chains that wait while the pool is short, all devices together; it
    is reserved at start, and 0 has none. ``tier_verify``: share of blocks whose checksum is compared when they
    come back from there; what does not match is computed again.
    ``strict``: raise at start where the engine cannot be managed, instead of running without leases.
    """

    kv_pool_ratio: float = field(default=0.85, validator=number(above=0, most=1))
    prefix_cache_mode: Literal["hybrid", "independent"] = field(
        default="hybrid", validator=one_of("hybrid", "independent")
    )
    admission: Literal["auto", "none"] = field(default="auto", validator=one_of("auto", "none"))
    peak_ratio: float = field(default=0.95, validator=share())
    max_queued: int = field(default=1024, validator=whole(least=1))
    cpu_tier_bytes: int = field(default=0, validator=whole(least=0))
    tier_verify: float = field(default=0.05, validator=share())
    strict: bool = field(default=False, validator=truth())


def _refuse_unbuilt(config: object, **built: object) -> None:
    for name, value in built.items():
        if (given := getattr(config, name)) != value:
            raise NotSupported(f"{type(config).__name__}.{name}={given!r} is not built yet; only {value!r} is")


#: How an engine that is named by its SPEC manages its KV unless it is told otherwise.
MANAGED = EngineKV()
