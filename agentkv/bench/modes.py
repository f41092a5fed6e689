"""What is compared: each mode is one configuration, and two modes differ in nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from attrs import asdict, evolve, field, frozen, validators

from agentkv.bench.offload import offload_options
from agentkv.config import EngineKV, TransferMode
from agentkv.errors import NotSupported, SetupError

__all__ = ("DEFAULT_POOL_RATIO", "MODES", "SWITCHES", "ModeConfig", "find_modes", "rank_of_mode")

# What can be switched off in every mode that has it, to see what it is worth; and what options call it.
SWITCHES = {"follow": "follower", "leases": "leases", "admission": "admission"}
DEFAULT_POOL_RATIO = 0.85
# A workload's agents all arrive, however many they are.
MAX_QUEUED = 1 << 20


@frozen(kw_only=True)
class ModeConfig:
    """What a mode has, beyond the client and the work that all have in common.

    ``reuse``: cached KV is read at all. ``follow``: a follower prefills ahead while tools run, as ``transfer_mode``
    says, in steps of at most ``prefetch_step`` tokens (None: as ``KVConfig`` has it). ``cap``: how many agents may be
    under way at once, a semaphore in the client; ``"best"`` is found by trial. ``leases``: the engine keeps what is
    alive, within ``kv_pool_ratio`` of its pool, resumes first; ``admission``: it starts only what fits. Without both
    it is left as it is. ``offload``: vLLM's own CPU tier of ``cpu_tier_bytes`` stands behind the pool; ``tier``: one
    that leases drive.
    Raises ``NotSupported`` for admission without leases: a run has no standing with such an engine.
    """

    reuse: bool = True
    follow: bool = False
    transfer_mode: TransferMode = "bidirectional"
    prefetch_step: int | None = field(default=None, validator=validators.optional(validators.ge(1)))
    cap: int | Literal["best"] | None = None
    leases: bool = False
    admission: bool = False
    kv_pool_ratio: float = DEFAULT_POOL_RATIO
    offload: bool = False
    tier: bool = False
    cpu_tier_bytes: int = 0

    def __attrs_post_init__(self) -> None:
        if self.admission and not self.leases:
            raise NotSupported("ModeConfig.admission=True with leases=False is not supported; switch both off")
        if not 0 < self.kv_pool_ratio <= 1:
            raise SetupError(f"kv_pool_ratio={self.kv_pool_ratio:g} must be above 0 and at most 1")
        if self.cpu_tier_bytes < 0:
            raise SetupError(f"cpu_tier_bytes={self.cpu_tier_bytes} must be at least 0")

    @property
    def managed(self) -> bool:
        """Whether there is anything of ours in it."""
        return self.follow or self.leases

    def engine_kv(self) -> EngineKV | None:
        """How the engine must manage its KV for this mode; modes for which that is equal share one engine."""
        if not self.leases:
            return None
        # Not strict: an engine that cannot be managed runs without, and the result says so.
        return EngineKV(
            kv_pool_ratio=self.kv_pool_ratio,
            admission="auto" if self.admission else "none",
            max_queued=MAX_QUEUED,
            cpu_tier_bytes=self.cpu_tier_bytes if self.tier else 0,
        )

    def engine_options(self) -> dict[str, Any]:
        """What the engine must be started with for this mode, beyond what all modes have in common."""
        return offload_options(self.cpu_tier_bytes) if self.offload else {}

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain values."""
        return asdict(self)


MODES: dict[str, ModeConfig] = {
    "stock-off": ModeConfig(reuse=False),
    # Prompts are token ids here and not text rendered afresh, so these two coincide, in favour of the first.
    "stock": ModeConfig(),
    "stock+exact": ModeConfig(),
    "stock+cap": ModeConfig(cap="best"),
    "stock+offload": ModeConfig(offload=True),
    "bidirectional": ModeConfig(follow=True, leases=True, admission=True),
    "auto": ModeConfig(follow=True, transfer_mode="auto", leases=True, admission=True),
    "bidirectional+tier": ModeConfig(follow=True, leases=True, admission=True, tier=True),
}


def rank_of_mode(name: str) -> int:
    """The place in ``MODES`` of a mode that ``find_modes`` named."""
    return list(MODES).index(name.partition("@")[0])


def find_modes(
    names: str,
    *,
    cap: int | None = None,
    without: Iterable[str] = (),
    kv_pool_ratios: Sequence[float] = (DEFAULT_POOL_RATIO,),
    cpu_tier_bytes: int = 0,
) -> dict[str, ModeConfig]:
    """The modes of a comma-separated list, in its order.

    ``cap`` replaces the trials of ``stock+cap``; ``without`` names ``SWITCHES`` to turn off wherever they are
    on; without leases there is no admission. With several ``kv_pool_ratios`` each mode that has leases is run with
    each, as ``NAME@RATIO``. ``cpu_tier_bytes`` is the size of the tiers that
    ``stock+offload`` and ``bidirectional+tier`` have.
    Raises ``SetupError`` for an unknown name, a name or ratio given twice, or a number out of bounds.
    """
    if cap is not None and cap < 1:
        raise SetupError(f"cap={cap} must be at least 1")
    if not kv_pool_ratios or len(set(kv_pool_ratios)) < len(kv_pool_ratios):
        raise SetupError("kv_pool_ratio: give one ratio, or several different ones")
    off: dict[str, Any] = dict.fromkeys(without, False)
    if not off.get("leases", True):
        # Without leases a run has no standing that admission could go by.
        off["admission"] = False
    found: dict[str, ModeConfig] = {}
    for name in (part.strip() for part in names.split(",")):
        if name not in MODES:
            raise SetupError(f"modes: there is no mode {name!r}; there are {', '.join(MODES)}")
        if any(name == each.partition("@")[0] for each in found):
            raise SetupError(f"modes: {name!r} is listed twice; once is enough")
        config = evolve(MODES[name], **off)
        if config.tier and not config.leases:
            raise SetupError(f"modes: {name!r} moves what is leased: it goes with leases alone; leave one of both out")
        if config.cap == "best" and cap is not None:
            config = evolve(config, cap=cap)
        found |= _sized(name, config, kv_pool_ratios, cpu_tier_bytes)
    return found


def _sized(name: str, config: ModeConfig, ratios: Sequence[float], tier: int) -> dict[str, ModeConfig]:
    """The mode in each of the sizes that it is to have."""
    if config.offload or config.tier:
        if tier == 0:
            raise SetupError(f"modes: {name!r} needs the size of its tier; give --cpu-tier-bytes BYTES")
        config = evolve(config, cpu_tier_bytes=tier)
    # Also of a mode that has no use for them: a wrong number is a mistake wherever it stands.
    sized = {f"{name}@{ratio:g}": evolve(config, kv_pool_ratio=ratio) for ratio in ratios}
    if not config.leases:
        return {name: config}
    return sized if len(ratios) > 1 else {name: evolve(config, kv_pool_ratio=ratios[0])}
