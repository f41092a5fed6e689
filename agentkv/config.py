"""What users and operators can set: the limits of a run, a client's KV policy, an engine's KV policy."""

from typing import Literal

from attrs import field, frozen, validators

from agentkv.errors import NotSupported

__all__ = ("EngineKV", "KVConfig", "Limits", "TransferMode")

TransferMode = Literal["auto", "off", "prefix", "bidirectional"]


@frozen(kw_only=True)
class Limits:
    """Bounds of one run; passing one ends the run with ``LimitExceeded``.

    ``steps`` counts generations, ``tool_calls`` counts calls, ``tokens`` counts generated tokens,
    ``seconds`` is the run's wall-clock time on the runtime's clock.
    """

    steps: int = field(default=50, validator=validators.ge(1))
    tool_calls: int = field(default=200, validator=validators.ge(0))
    tokens: int = field(default=100_000, validator=validators.ge(1))
    seconds: float = field(default=3600.0, validator=validators.gt(0))


@frozen(kw_only=True)
class KVConfig:
    """A client's KV policy.

    ``kv_transfer_mode``: ``"off"`` asks the engine not to reuse cached KV at all, ``"prefix"`` relies on the
    engine's prefix cache alone (one way), ``"bidirectional"`` also prefills ahead while tools run, ``"auto"``
    picks between the last two by what there is to gain.
    ``prefetch_step``: most tokens that one prefetch request may ask the engine to compute; a prefetch is a
    series of such steps, so that a resume never waits behind more than one.
    """

    kv_transfer_mode: TransferMode = field(
        default="auto", validator=validators.in_(("auto", "off", "prefix", "bidirectional"))
    )
    prefetch_step: int = field(default=256, validator=validators.ge(1))
    branch_prefetch_limit: int = field(default=8)
    transfer_sync_level: Literal[0, 1, 2] = field(default=1)
    allow_shifted_splice: bool = field(default=False)

    def __attrs_post_init__(self) -> None:
        _refuse_unbuilt(self, branch_prefetch_limit=8, transfer_sync_level=1, allow_shifted_splice=False)


@frozen(kw_only=True)
class EngineKV:
    """An operator's KV policy, one per engine."""

    kv_pool_ratio: float = field(default=0.85)
    prefix_cache_mode: Literal["hybrid", "independent"] = field(default="hybrid")
    admission: Literal["auto", "none"] = field(default="none")
    cpu_tier_bytes: int = field(default=0)

    def __attrs_post_init__(self) -> None:
        _refuse_unbuilt(self, kv_pool_ratio=0.85, prefix_cache_mode="hybrid", admission="none", cpu_tier_bytes=0)


def _refuse_unbuilt(config: object, **built: object) -> None:
    for name, value in built.items():
        if (given := getattr(config, name)) != value:
            raise NotSupported(f"{type(config).__name__}.{name}={given!r} is not built yet; only {value!r} is")
