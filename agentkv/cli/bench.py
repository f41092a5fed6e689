"""``agentkv bench WORKLOAD``: the same agents in several modes, side by side."""

import argparse
import sys
from typing import Any

from agentkv.bench import SeedShape, run_benchmark, table_lines
from agentkv.cli.bench_fanout import add_fanout
from agentkv.cli.bench_options import add_common_options, benchmark_of, parse_delay
from agentkv.cli.bench_output import check_outputs, write_json, write_outputs
from agentkv.cli.bench_traces import add_traces
from agentkv.cli.calibrate import add_calibrate
from agentkv.cli.frontier import add_frontier
from agentkv.cli.help_format import DefaultsFormatter
from agentkv.cli.option_names import naming_options
from agentkv.cli.predictors import add_predictors
from agentkv.cli.sweep import add_sweep
from agentkv.cli.terminate import run_until_told
from agentkv.errors import AgentKVError, SetupError

__all__ = ("add_options", "command")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agentkv bench``."""
    workloads = parser.add_subparsers(required=True, metavar="WORKLOAD")
    seed = workloads.add_parser(
        "seed",
        help="agents with one anchor, a long history, and tools",
        formatter_class=DefaultsFormatter,
    )
    add_common_options(seed)
    _seed_options(seed)
    seed.set_defaults(command=command, workload=_seed)
    add_traces(workloads, add_common_options, command)
    add_fanout(workloads, add_common_options, command)
    add_calibrate(workloads)
    add_frontier(workloads)
    add_sweep(workloads)
    add_predictors(workloads)


def command(options: argparse.Namespace) -> int:
    """Run the workload, write what was asked for, print the table."""
    with naming_options(options, block="block_size", settle="settle_seconds"):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    check_outputs(options)
    bench = benchmark_of(options)
    kept: list[dict[str, Any]] = []

    def keep(result: dict[str, Any]) -> None:
        kept[:] = [result]
        try:
            write_json(options, result)
        except AgentKVError as error:
            # Of no use to end it now: what is measured meanwhile may yet find room, and is in the table.
            _progress(str(error))

    try:
        kept = [run_until_told(lambda: run_benchmark(bench, _progress, keep))]
    finally:
        # Of an hour's work that was cut short, what had been measured remains.
        for result in kept:
            # First what is kept: whoever reads the table may turn away.
            try:
                write_outputs(options, result)
            finally:
                print("\n".join(table_lines(result)))
    return 0


def _seed_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chains", metavar="N", type=int, default=100, help="agents")
    parser.add_argument("--prompt-tokens", metavar="N", type=int, default=6000, help="of the first prompt, all of it")
    parser.add_argument("--shared-tokens", metavar="N", type=int, default=2000, help="of these, common to all agents")
    parser.add_argument(
        "--history-turns", metavar="N", type=int, default=40, help="that the first prompt has behind it"
    )
    parser.add_argument("--tool-calls", metavar="N", type=int, default=8, help="of each agent, one after the other")
    parser.add_argument("--result-tokens", metavar="LO:HI", default="300:300", help="of each tool's result")
    parser.add_argument("--result-pieces", metavar="N", type=int, default=1, help="in which a result arrives")
    parser.add_argument("--tool-seconds", metavar="LO:HI", default="1:3", help="or lognormal:MEDIAN:SIGMA")
    parser.add_argument("--output-tokens", metavar="N", type=int, default=64, help="of each generation")
    parser.add_argument("--start-spread", metavar="SECONDS", type=float, default=12.0, help="over which they arrive")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of all that is drawn")


def _seed(options: argparse.Namespace) -> SeedShape:
    return SeedShape(
        chains=options.chains,
        prompt_tokens=options.prompt_tokens,
        shared_tokens=options.shared_tokens,
        history_turns=options.history_turns,
        tool_calls=options.tool_calls,
        result_tokens=_range(options.result_tokens),
        result_pieces=options.result_pieces,
        tool_seconds=parse_delay("--tool-seconds", options.tool_seconds),
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


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
