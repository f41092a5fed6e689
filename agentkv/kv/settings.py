"""How an engine manages its KV: the operator's choices, validated once."""

from collections.abc import Mapping
from typing import Any

from attrs import field, fields, frozen, validators

from agentkv.errors import NotSupported
from agentkv.kv.admission import AdmissionMode
from agentkv.kv.allowance import PEAK_RATIO
from agentkv.kv.order import CacheMode

__all__ = ("PolicySettings",)


@frozen(kw_only=True)
class PolicySettings:
    """Settings of ``KVPolicy`` and of what runs it.

    ``kv_pool_ratio``: share of the pool's blocks that leases may hold; admitted runs may plan the whole pool.
    ``prefix_cache_mode``: ``"hybrid"`` keeps leased KV in the one eviction order; ``"independent"`` takes no
    leases, so everything lives by least recent use. ``admission``: ``"auto"`` or ``"none"`` (start everything).
    ``branch_prefetch_limit``: prefetches of one run that may be in the engine at once. ``prefetch_step``: tokens
    that all prefetches together may compute in one engine step, None for half of it. ``max_queued`` and
    ``max_bypass`` bound the line of runs and how often one may be passed. ``max_overtakes``: resumes that may go
    before one waiting cold prompt. ``peak_ratio``: share of the pool that admitted runs may be expected to fill at
    their fullest moment where their largest do not all fit at once; 0 starts only what fits at once.
    ``cpu_tier_bytes``: host memory for KV of chains that wait, all devices together; 0 has none. ``tier_verify``:
    share of blocks whose checksum is compared when they come back. ``tier_reserve``: share of the pool that is to
    be free, or copied and so free to go, ahead of need.
    ``strict``: raise at start where the engine cannot be managed, instead of running without leases.
    """

    kv_pool_ratio: float = field(default=0.85, validator=[validators.gt(0), validators.le(1)])
    prefix_cache_mode: CacheMode = field(default="hybrid", validator=validators.in_(("hybrid", "independent")))
    admission: AdmissionMode = field(default="auto", validator=validators.in_(("auto", "none")))
    branch_prefetch_limit: int = field(default=8, validator=validators.ge(0))
    prefetch_step: int | None = field(default=None, validator=validators.optional(validators.ge(1)))
    max_queued: int = field(default=1024, validator=validators.ge(1))
    max_bypass: int = field(default=4, validator=validators.ge(0))
    peak_ratio: float = field(default=PEAK_RATIO, validator=[validators.ge(0), validators.le(1)])
    max_overtakes: int = field(default=64, validator=validators.ge(0))
    cpu_tier_bytes: int = field(default=0, validator=validators.ge(0))
    tier_verify: float = field(default=0.05, validator=[validators.ge(0), validators.le(1)])
    tier_reserve: float = field(default=0.25, validator=[validators.ge(0), validators.le(1)])
    strict: bool = field(default=False, validator=validators.instance_of(bool))

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "PolicySettings":
        """Settings from a JSON object; raises ``NotSupported`` for a name it does not know or a value out of bounds."""
        if unknown := sorted(set(wire) - {each.name for each in fields(cls)}):
            raise NotSupported(f"unknown engine KV setting {unknown[0]!r}: remove it")
        try:
            return cls(**wire)
        except (TypeError, ValueError) as error:
            raise NotSupported(f"engine KV settings: {error.args[0]}") from error

    def capabilities(self) -> dict[str, str]:
        """What of KV management these settings put in force, as ``EngineInfo.capabilities`` says it."""
        return {
            "leases": "on" if self.prefix_cache_mode == "hybrid" else "off: prefix_cache_mode is independent",
            "order": "on",
            "admission": "on" if self.admission == "auto" else "off: admission is none",
            "tier": self._tier(),
        }

    def _tier(self) -> str:
        if not self.cpu_tier_bytes:
            return "off: cpu_tier_bytes is 0"
        return "on" if self.prefix_cache_mode == "hybrid" else "off: prefix_cache_mode is independent"
