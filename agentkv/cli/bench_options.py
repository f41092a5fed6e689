"""The options that every workload of ``agentkv bench`` has."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentkv.bench import DEFAULT_BOUND_MS, DEFAULT_POOL_RATIO, MODES, Benchmark, Delay, Workload, find_modes
from agentkv.cli.engine_options import add_engine_option, parse_engine_options
from agentkv.cli.size import parse_bytes
from agentkv.errors import SetupError

__all__ = ("add_common_options", "benchmark_of", "parse_delay")

T = TypeVar("T", int, float)
SWITCHED = {"follow": "follower", "leases": "leases", "admission": "admission"}
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
    for switch, name in SWITCHED.items():
        parser.add_argument(f"--no-{name}", dest="without", action="append_const", const=switch, default=[])
    parser.add_argument(
        "--kv-pool-ratio",
        metavar="R,R..",
        default=f"{DEFAULT_POOL_RATIO}",
        help="share of the pool that leases may hold; several: each is a mode of its own",
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
        "--bound-ms", metavar="MS", type=float, default=DEFAULT_BOUND_MS, help="the frontier's p95 after a tool"
    )


def _output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the machine form there")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one page with figures there")


def benchmark_of(options: argparse.Namespace, workload: Workload) -> Benchmark:
    """The benchmark that the options ask for. Raises ``SetupError`` or ``NotSupported``."""
    return Benchmark(
        engine=options.engine,
        workload=workload,
        modes=find_modes(
            options.modes,
            cap=options.cap,
            without=options.without,
            kv_pool_ratios=_numbers("--kv-pool-ratio", options.kv_pool_ratio, float),
            cpu_tier_bytes=parse_bytes("--cpu-tier-bytes", options.cpu_tier_bytes) if options.cpu_tier_bytes else 0,
        ),
        pool=options.pool,
        block=options.block_size,
        repeat=options.repeat,
        floor_samples=options.floor_samples,
        warm_up=options.warm_up,
        options=parse_engine_options(options.engine_option),
        duration=options.duration,
        settle=options.settle_seconds,
        frontier=_numbers("--frontier", options.frontier, int) if options.frontier is not None else (),
        bound_ms=options.bound_ms,
    )


def parse_delay(option: str, text: str) -> Delay:
    """What ``Delay.parse`` makes of ``text``. Raises ``SetupError`` naming ``option``."""
    try:
        return Delay.parse(text)
    except SetupError as error:
        raise SetupError(f"{option}: {error}") from None


def _numbers(option: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise SetupError(f"{option} is a list of numbers separated by commas; got {text!r}") from None
