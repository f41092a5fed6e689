"""``agentkv bench predictors``: what guesses at tool results are worth on recorded conversations."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agentkv.bench import find_chat, judge_predictors, predictor_lines
from agentkv.cli.bench_output import check_writable, write_text
from agentkv.cli.bench_traces import find_trajectories
from agentkv.cli.help_format import DefaultsFormatter
from agentkv.cli.load import load_function
from agentkv.cli.option_names import about, check_least

__all__ = ("add_predictors",)


def add_predictors(workloads: Any) -> None:
    """Declare the subcommand."""
    parser = workloads.add_parser(
        "predictors",
        help="how good guesses at tool results are on recorded conversations",
        description="Guesses each recorded result by what calls gave before, and counts tokens. Starts no engine.",
        formatter_class=DefaultsFormatter,
    )
    parser.add_argument(
        "--trace", metavar="PATH", type=Path, nargs="+", required=True, help="files with a conversation a line"
    )
    parser.add_argument("--engine", metavar="SPEC", default="vllm", help="whose tokenizer: vllm[:MODEL] or sim")
    parser.add_argument("--tokenizer", metavar="PATH", type=Path, help="folder; left out: the engine's own")
    parser.add_argument("--block-size", metavar="N", type=int, default=32, help="tokens in a KV block")
    parser.add_argument("--memo", choices=("run", "agent"), default="run", help="as KVConfig.predict_results")
    parser.add_argument("--hook", metavar="FILE:NAME", help="a function of the call, as @tool(predict=...) takes it")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the machine form there")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    check_least(options, block_size=1)
    if options.json is not None:
        check_writable("--json", options.json)
    files = find_trajectories(options.trace)
    with about("--hook"):
        hook = None if options.hook is None else load_function(options.hook)
    chat, _ = find_chat(options.engine, {}, options.tokenizer, _progress)
    result = judge_predictors(files, chat, block=options.block_size, hook=hook, for_agent=options.memo == "agent")
    if options.json is not None:
        write_text("--json", options.json, json.dumps(result, indent=1) + "\n")
    print("\n".join(predictor_lines(result)))
    return 0


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
