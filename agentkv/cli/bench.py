"""``agentkv bench seed``: the same agents in several modes, side by side."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from agentkv.bench import MODES, Benchmark, Delay, SeedShape, find_modes, run_benchmark, table_lines
from agentkv.errors import SetupError

__all__ = ("add_options", "command")

SWITCHED = {"follow": "follower", "leases": "leases", "admission": "admission"}
DEFAULT_MODES = "stock,stock+cap,bidirectional"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agentkv bench``."""
    workloads = parser.add_subparsers(required=True, metavar="WORKLOAD")
    seed = workloads.add_parser(
        "seed", help="agents with one anchor, a long history, and tools", formatter_class=_Defaults
    )
    _engine_options(seed)
    _workload_options(seed)
    seed.set_defaults(command=command)


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each option's default."""


def _engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", metavar="SPEC", default="vllm", help="vllm[:MODEL] or sim[:PRESET]")
    parser.add_argument("--engine-option", metavar="NAME=JSON", action="append", default=[], help="may be repeated")
    parser.add_argument("--modes", metavar="LIST", default=DEFAULT_MODES, help=f"of {', '.join(MODES)}")
    parser.add_argument("--cap", metavar="N", type=int, help="stock+cap's limit; left out, it is found by trials")
    for switch, name in SWITCHED.items():
        parser.add_argument(f"--no-{name}", dest="without", action="append_const", const=switch, default=[])
    parser.add_argument("--kv-pool-ratio", metavar="R", type=float, default=0.85, help="that leases may hold")
    parser.add_argument("--pool", metavar="SHARE", type=float, help="KV pool as a share of the working set")
    parser.add_argument("--block-size", metavar="N", type=int, default=32, help="tokens in a KV block")
    parser.add_argument("--repeat", metavar="N", type=int, default=1)
    parser.add_argument("--floor-samples", metavar="N", type=int, default=20, help="resumes on the idle engine")
    parser.add_argument("--warm-up", metavar="N", type=int, default=20, help="requests not measured")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the machine form there")


def _workload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chains", metavar="N", type=int, default=100, help="agents")
    parser.add_argument("--prompt-tokens", metavar="N", type=int, default=6000, help="of the first prompt, all of it")
    parser.add_argument("--shared-tokens", metavar="N", type=int, default=2000, help="of these, common to all agents")
    parser.add_argument("--history-turns", metavar="N", type=int, default=40)
    parser.add_argument("--tool-calls", metavar="N", type=int, default=8, help="of each agent, one after the other")
    parser.add_argument("--result-tokens", metavar="LO:HI", default="300:300")
    parser.add_argument("--result-pieces", metavar="N", type=int, default=1, help="in which a result arrives")
    parser.add_argument("--tool-seconds", metavar="LO:HI", default="1:3", help="or lognormal:MEDIAN:SIGMA")
    parser.add_argument("--output-tokens", metavar="N", type=int, default=64)
    parser.add_argument("--start-spread", metavar="SECONDS", type=float, default=12.0)
    parser.add_argument("--seed", metavar="N", type=int, default=0)


def command(options: argparse.Namespace) -> int:
    """Run the seed workload, print the table, write the machine form where asked to."""
    if options.json is not None and not options.json.parent.is_dir():
        raise SetupError(f"--json {options.json}: there is no folder {str(options.json.parent)!r}")
    result = anyio.run(run_benchmark, _bench(options), _progress)
    print("\n".join(table_lines(result)))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def _bench(options: argparse.Namespace) -> Benchmark:
    return Benchmark(
        engine=options.engine,
        workload=_seed(options),
        modes=find_modes(options.modes, cap=options.cap, without=options.without, kv_pool_ratio=options.kv_pool_ratio),
        pool=options.pool,
        block=options.block_size,
        repeat=options.repeat,
        floor_samples=options.floor_samples,
        warm_up=options.warm_up,
        options=dict(_engine_option(text) for text in options.engine_option),
    )


def _seed(options: argparse.Namespace) -> SeedShape:
    return SeedShape(
        chains=options.chains,
        prompt_tokens=options.prompt_tokens,
        shared_tokens=options.shared_tokens,
        history_turns=options.history_turns,
        tool_calls=options.tool_calls,
        result_tokens=_range(options.result_tokens),
        result_pieces=options.result_pieces,
        tool_seconds=Delay.parse(options.tool_seconds),
        output_tokens=options.output_tokens,
        start_spread=options.start_spread,
        seed=options.seed,
    )


def _range(text: str) -> tuple[int, int]:
    try:
        low, high = map(int, text.split(":"))
    except ValueError:
        raise SetupError(f"--result-tokens is LO:HI, two whole numbers; got {text!r}") from None
    return low, high


def _engine_option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise SetupError(
            f"--engine-option {text!r}: give NAME=VALUE with a JSON value, as max_num_seqs=64 or dtype='\"float32\"'"
            if separator
            else f"--engine-option {text!r}: give NAME=VALUE"
        ) from None


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
