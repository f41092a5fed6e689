"""``agentkv bench frontier``: one picture of results that come from several engine starts."""

import argparse
import math
from pathlib import Path
from typing import Any

from agentkv.bench import frontier_picture, require_plotting
from agentkv.bench.joined_frontier import join_results, joined_lines
from agentkv.bench.steady_result import read_steady
from agentkv.cli.bench_output import check_writable, write_text
from agentkv.errors import SetupError

__all__ = ("add_frontier",)


def add_frontier(workloads: Any) -> None:
    """Declare the subcommand."""
    parser = workloads.add_parser(
        "frontier",
        help="p95 TTFT after a tool over tasks per minute, of several results",
        description="Puts results of 'bench WORKLOAD --duration S --json FILE' into one table and one picture.",
    )
    parser.add_argument(
        "results", metavar="RESULT.json", type=Path, nargs="+", help="of steady loads, on equal engines"
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw it there (needs the extra 'bench')")
    parser.add_argument(
        "--bound-ms", metavar="MS", type=float, help="of p95 TTFT after a tool (default: that of the results, or 200)"
    )
    parser.add_argument(
        "--allow",
        metavar="FIELD",
        action="append",
        default=[],
        help="a field that results may differ in, or 'complete'; repeatable",
    )
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    if options.bound_ms is not None and not 0 < options.bound_ms < math.inf:
        raise SetupError(f"--bound-ms {options.bound_ms:g} must be above 0")
    if options.svg is not None:
        check_writable("--svg", options.svg)
        require_plotting("--svg")
    files = [path.resolve() for path in options.results]
    if twice := next((path for path in files if files.count(path) > 1), None):
        raise SetupError(f"{str(twice)!r} is given twice: a repetition is another run, with a file of its own")
    joined = join_results(
        [read_steady(path) for path in options.results], bound_ms=options.bound_ms, allow=options.allow
    )
    if options.svg is not None:
        write_text("--svg", options.svg, frontier_picture(joined.frontier, joined.title))
    print("\n".join(joined_lines(joined)))
    return 0
