"""Options of ``agentkv bench`` that would change nothing beside the others: who gives one expects it to count."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from agentkv.bench import MODES, SWITCHES, ModeConfig
from agentkv.errors import SetupError

__all__ = ("refuse_idle",)

# What the engines call the size of the pool and that of a block.
POOL_SIZES = ("pool_blocks", "num_gpu_blocks_override")


def refuse_idle(
    options: argparse.Namespace, modes: Mapping[str, ModeConfig], engine_options: Mapping[str, Any]
) -> None:
    """Raise ``SetupError`` naming the first option that no mode, load or engine goes by."""
    chosen = " ".join((f"--modes {options.modes}", *(f"--no-{SWITCHES[each]}" for each in options.without)))
    for flag, given, counts, what in _of_modes(options, modes):
        if given and not counts:
            # What is switched off is named where it may be that which the modes lack.
            has = f"--modes {options.modes}" if flag.startswith("--no-") else chosen
            raise SetupError(
                f"{flag} is about modes with {what}, of which {has} has none: add one, or leave out {flag}"
            )
    if options.bound_ms is not None and options.frontier is None:
        raise SetupError("--bound-ms is the bound of a frontier: give --frontier N,N.., or leave it out")
    if options.pool is not None and (twice := next((name for name in POOL_SIZES if name in engine_options), None)):
        raise SetupError(f"--pool and --engine-option {twice} both say how large the pool is: leave one out")
    if "block_size" in engine_options:
        raise SetupError("--engine-option block_size: say --block-size N, by which the benchmark counts, too")
    if options.json is not None and options.html is not None and options.json.resolve() == options.html.resolve():
        raise SetupError(f"--json and --html both write to {str(options.json)!r}: name two files")


def _of_modes(options: argparse.Namespace, modes: Mapping[str, ModeConfig]) -> Iterator[tuple[str, bool, bool, str]]:
    """Each option that is about some modes: whether it is given, whether it counts, and what those have."""
    found = modes.values()
    yield "--cap", options.cap is not None, any(mode.cap is not None for mode in found), "a limit (stock+cap)"
    for switch, name in SWITCHES.items():
        has = any(getattr(MODES[mode.partition("@")[0]], switch) for mode in modes)
        yield f"--no-{name}", switch in options.without, has, "a follower" if switch == "follow" else name
    yield "--kv-pool-ratio", options.kv_pool_ratio is not None, any(mode.leases for mode in found), "leases"
    tiered = any(mode.offload or mode.tier for mode in found)
    yield "--cpu-tier-bytes", options.cpu_tier_bytes is not None, tiered, "a second tier"
