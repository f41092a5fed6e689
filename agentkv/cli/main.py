"""Options of every command, and how errors reach a terminal."""

import argparse
import sys
from collections.abc import Sequence
from typing import get_args

from agentkv.cli import advise, bench, capacity, doctor, graph, run
from agentkv.config import TransferMode
from agentkv.errors import AgentKVError, SetupError

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 when it did its work, 1 when a run failed, 2 when it could not begin."""
    options = _parser().parse_args(argv)
    try:
        return int(options.command(options))
    except SetupError as error:
        print(f"agentkv: {error}", file=sys.stderr)
        return 2
    except AgentKVError as error:
        print(f"agentkv: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("agentkv: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentkv", description="Agents whose runtime keeps the KV cache ahead of them."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _run_options(commands.add_parser("run", help="run an agent or a graph from a Python file"))
    drawing = commands.add_parser("graph", help="draw an agent's or a graph's nodes as Mermaid")
    drawing.add_argument("target", metavar="FILE[:NAME]")
    drawing.set_defaults(command=graph.command)
    checking = commands.add_parser("doctor", help="say what an engine can do, and what the chat template allows")
    checking.add_argument("engine", metavar="SPEC", nargs="?", default="vllm", help="vllm[:MODEL] or sim[:PRESET]")
    checking.add_argument("--json", action="store_true", help="print the machine form")
    checking.set_defaults(command=doctor.command)
    bench.add_options(commands.add_parser("bench", help="measure the same agents in several modes, side by side"))
    capacity.add_options(commands.add_parser("capacity", help="say what a model and a memory hold, without starting"))
    advise.add_options(commands.add_parser("advise", help="say whether managing KV pays for a recorded workload"))
    return parser


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FILE[:NAME]", help="a Python file, and the agent or graph in it")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="default: the file's own prompt")
    parser.add_argument("--engine", metavar="SPEC", default="vllm", help="vllm[:MODEL] or sim[:PRESET]")
    parser.add_argument("--store", metavar="STORE", default="memory", help="memory or sqlite:PATH")
    parser.add_argument("--kv-transfer-mode", choices=get_args(TransferMode), default="auto")
    parser.add_argument("--json", action="store_true", help="print the machine form of the report")
    parser.set_defaults(command=run.command)


if __name__ == "__main__":
    sys.exit(main())
