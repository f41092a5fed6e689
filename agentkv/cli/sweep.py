"""``agentkv bench sweep``: where prefilling ahead pays."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from agentkv.bench.sweep import Grid, sweep, sweep_lines
from agentkv.cli.bench_options import parse_delay
from agentkv.cli.bench_output import check_writable, write_text
from agentkv.cli.help_format import DefaultsFormatter
from agentkv.cli.option_names import naming_options
from agentkv.errors import SetupError

__all__ = ("add_sweep",)


def add_sweep(workloads: Any) -> None:
    """Declare the subcommand."""
    parser = workloads.add_parser(
        "sweep",
        help="stock, bidirectional and auto over a grid of workloads",
        formatter_class=DefaultsFormatter,
    )
    parser.add_argument("--engine", metavar="SPEC", default="sim:h200", help="vllm[:MODEL] or sim[:PRESET]")
    parser.add_argument("--block-size", metavar="N", type=int, default=16, help="tokens in a KV block")
    parser.add_argument("--prompt-tokens", metavar="N,N..", default="500,3000,8000", help="of the first prompt")
    parser.add_argument("--tool-calls", metavar="N,N..", default="2,6", help="of each agent")
    parser.add_argument("--tool-seconds", metavar="LO:HI,LO:HI..", default="0.1:0.3,1:3,4:8", help="of each call")
    parser.add_argument("--chains", metavar="N", type=int, default=16, help="agents")
    parser.add_argument("--result-tokens", metavar="N", type=int, default=400, help="of each result")
    parser.add_argument("--result-pieces", metavar="N", type=int, default=8, help="in which a result arrives")
    parser.add_argument("--seeds", metavar="N", type=int, default=3, help="of each point, taken together")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    with naming_options(options, block="block_size"):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.json is not None:
        check_writable("--json", options.json)
    grid = Grid(
        prompt_tokens=_whole("--prompt-tokens", options.prompt_tokens),
        tool_calls=_whole("--tool-calls", options.tool_calls),
        tool_seconds=[parse_delay("--tool-seconds", part) for part in options.tool_seconds.split(",")],
        seeds=options.seeds,
        chains=options.chains,
        result_tokens=options.result_tokens,
        result_pieces=options.result_pieces,
    )
    rows = anyio.run(partial(sweep, options.engine, grid, block=options.block_size, progress=_progress))
    print("\n".join(sweep_lines(rows)))
    if options.json is not None:
        content = {"schema": "agentkv.sweep/1", "points": rows}
        write_text("--json", options.json, json.dumps(content, indent=1) + "\n")
    return 0


def _whole(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SetupError(f"{option} is a list of whole numbers separated by commas; got {text!r}") from None


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
