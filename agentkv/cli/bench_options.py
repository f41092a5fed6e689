"""The options that every workload of ``agentkv bench`` has."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentkv.bench import (
    DEFAULT_BOUND_MS,
    DEFAULT_POOL_RATIO,
    MODES,
    SWITCHES,
    Benchmark,
    Delay,
    ModeConfig,
    Workload,
    find_modes,
)
from agentkv.cli.engine_options import add_engine_option, parse_engine_options
from agentkv.cli.idle_options import refuse_idle
from agentkv.cli.option_names import about
from agentkv.cli.size import parse_bytes
from agentkv.errors import SetupError

__all__ = ("add_common_options", "benchmark_of", "parse_delay")

T = TypeVar("T", int, float)
DEFAULT_MODES = "stock,stock+cap,bidirectional"


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Declare them on the parser of one workload."""
    _engine_options(parser)
    _mode_options(parser)
    _load_options(parser)
    _output_options(parser)


def _engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", metavar="SPEC", default="vllm", help="vllm[:MODEL] or sim[:PRESET]")
    add_engine_option(parser)
    parser.add_argument("--pool", metavar="SHARE", type=float, help="KV pool as a share of the working set")
    parser.add_argument("--block-size", metavar="N", type=int, default=32, help="tokens in a KV block")
    parser.add_argument("--warm-up", metavar="N", type=int, default=20, help="requests not measured")


def _mode_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--modes", metavar="LIST", default=DEFAULT_MODES, help=f"of {', '.join(MODES)}")
    parser.add_argument("--cap", metavar="N", type=int, help="stock+cap's limit; left out, it is found by trials")
    for switch, name in SWITCHES.items():
        parser.add_argument(
            f"--no-{name}",
            dest="without",
            action="append_const",
            const=switch,
            default=[],
            help="leave it out of every mode that has it",
        )
    parser.add_argument(
        "--kv-pool-ratio",
        metavar="R,R..",
        help="share of the pool that leases may hold; several: each is a mode of its own; "
        f"left out: {DEFAULT_POOL_RATIO}",
    )
    parser.add_argument("--cpu-tier-bytes", metavar="BYTES", help="host memory of modes with a second tier, as 32GiB")


def _load_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="repetitions, interleaved")
    parser.add_argument("--floor-samples", metavar="N", type=int, default=20, help="resumes on the idle engine")
    parser.add_argument("--duration", metavar="S", type=float, help="replace agents that end, for so many seconds")
    parser.add_argument(
        "--settle-seconds", metavar="S", type=float, help="of these, do not count the first; left out: a quarter"
    )
    parser.add_argument("--frontier", metavar="N,N..", help="numbers of agents to try, each for --duration")
    parser.add_argument(
        "--bound-ms", metavar="MS", type=float, help=f"the frontier's p95 after a tool; left out: {DEFAULT_BOUND_MS:g}"
    )


def _output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the machine form there")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one page with figures there")


def benchmark_of(options: argparse.Namespace) -> Benchmark:
    """The benchmark that the options ask for. Raises ``SetupError`` or ``NotSupported``."""
    modes, engine_options = _modes(options), parse_engine_options(options.engine_option)
    refuse_idle(options, modes, engine_options)
    # Only now: reading a trace may take minutes.
    workload: Workload = options.workload(options)
    return Benchmark(
        engine=options.engine,
        workload=workload,
        modes=modes,
        pool=options.pool,
        block=options.block_size,
        repeat=options.repeat,
        floor_samples=options.floor_samples,
        warm_up=options.warm_up,
        options=engine_options,
        duration=options.duration,
        settle=options.settle_seconds,
        frontier=_numbers("--frontier", options.frontier, int) if options.frontier is not None else (),
        bound_ms=DEFAULT_BOUND_MS if options.bound_ms is None else options.bound_ms,
    )


def _modes(options: argparse.Namespace) -> dict[str, ModeConfig]:
    ratios, tier = options.kv_pool_ratio, options.cpu_tier_bytes
    return find_modes(
        options.modes,
        cap=options.cap,
        without=options.without,
        kv_pool_ratios=(DEFAULT_POOL_RATIO,) if ratios is None else _numbers("--kv-pool-ratio", ratios, float),
        cpu_tier_bytes=0 if tier is None else parse_bytes("--cpu-tier-bytes", tier),
    )


def parse_delay(option: str, text: str) -> Delay:
    """What ``Delay.parse`` makes of ``text``. Raises ``SetupError`` naming ``option``."""
    with about(option):
        return Delay.parse(text)


def _numbers(option: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise SetupError(f"{option} is a list of numbers separated by commas; got {text!r}") from None
