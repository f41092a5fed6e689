"""What is compared: each mode is one configuration, and two modes differ in nothing else."""

from typing import Any, Literal

from attrs import asdict, evolve, field, frozen, validators

from agentkv.errors import NotSupported, SetupError

__all__ = ("MODES", "ModeConfig", "find_modes")


@frozen(kw_only=True)
class ModeConfig:
    """What a mode has, beyond the client and the work that all have in common.

    ``reuse``: cached KV is read at all. ``follow``: a follower prefills ahead while tools run, in steps of at
    most ``prefetch_step`` tokens. ``cap``: how many agents may be under way at once, a semaphore in the
    client; ``"best"`` is found by trial. ``leases``, ``admission``: the engine keeps what is alive, and starts
    only what fits. Raises ``NotSupported`` for the last two, which engines cannot do yet.
    """

    reuse: bool = True
    follow: bool = False
    prefetch_step: int = field(default=256, validator=validators.ge(1))
    cap: int | Literal["best"] | None = None
    leases: bool = False
    admission: bool = False

    def __attrs_post_init__(self) -> None:
        for name in ("leases", "admission"):
            if getattr(self, name):
                raise NotSupported(f"ModeConfig.{name}=True: no engine can do that yet; leave it out")

    def engine_options(self) -> dict[str, Any]:
        """What the engine must be started with for this mode; modes with equal options share one engine."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """The configuration as plain values."""
        return asdict(self)


MODES: dict[str, ModeConfig] = {
    "stock-off": ModeConfig(reuse=False),
    # Prompts are token ids here and not text rendered afresh, so these two coincide, in favour of the first.
    "stock": ModeConfig(),
    "stock+exact": ModeConfig(),
    "stock+cap": ModeConfig(cap="best"),
    "bidirectional": ModeConfig(follow=True),
}


def find_modes(names: str, *, cap: int | None = None, follower: bool = True) -> dict[str, ModeConfig]:
    """The modes of a comma-separated list, in its order.

    ``cap`` replaces the trials of ``stock+cap``; ``follower=False`` turns following off wherever it is on.
    Raises ``SetupError`` for an unknown name, a name given twice, or a cap below 1.
    """
    if cap is not None and cap < 1:
        raise SetupError(f"cap={cap} must be at least 1")
    found: dict[str, ModeConfig] = {}
    for name in (part.strip() for part in names.split(",")):
        if name not in MODES:
            raise SetupError(f"there is no mode {name!r}; there are {', '.join(MODES)}")
        if name in found:
            raise SetupError(f"mode {name!r} is listed twice")
        config = MODES[name]
        if config.cap == "best" and cap is not None:
            config = evolve(config, cap=cap)
        found[name] = config if follower else evolve(config, follow=False)
    return found
