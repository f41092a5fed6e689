"""Options of every command, and how errors reach a terminal."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import get_args

from agentkv import __version__
from agentkv.cli import advise, bench, capacity, doctor, graph, run
from agentkv.cli.engine_options import add_engine_option
from agentkv.cli.failure import tell
from agentkv.cli.terminate import Terminated
from agentkv.config import TransferMode
from agentkv.errors import AgentKVError

__all__ = ("main",)

NAMES = """Run an agent or a graph from a Python file, and print its answer and its report.

The file is imported; of its top-level names these are looked for:
  graph, agent  what to run where no NAME is given: an akv.Graph, or else an akv.Agent; a file that declares
                only one of either may call it as it likes
  prompt        the prompt where none is given
  deps          what is handed to the tools
  limits        the run's akv.Limits, where the defaults are not what it needs
  script        what the simulated model says on --engine sim; without it, it makes something up"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 when it did its work, 1 when a run failed, 2 when it could not begin.

    Signals give what shells expect: 130 after an interrupt, 143 after SIGTERM, 141 when nobody reads the output.
    """
    options = _parser().parse_args(argv)
    try:
        status = int(options.command(options))
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except AgentKVError as error:
        return tell(error)
    except KeyboardInterrupt:
        print("agentkv: interrupted", file=sys.stderr)
        return 130
    except Terminated:
        print("agentkv: terminated", file=sys.stderr)
        return 143
    return status


def _reader_gone() -> int:
    """Whoever read the output has left, as ``head`` does: no error, and nothing more to be written at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentkv", description="Agents whose runtime keeps the KV cache ahead of them."
    )
    parser.add_argument("--version", action="version", version=f"agentkv {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _run_options(
        commands.add_parser(
            "run",
            help="run an agent or a graph from a Python file",
            description=NAMES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    drawing = commands.add_parser("graph", help="draw an agent's or a graph's nodes as Mermaid")
    drawing.add_argument("target", metavar="FILE[:NAME]")
    drawing.set_defaults(command=graph.command)
    checking = commands.add_parser("doctor", help="say what an engine can do, and what the chat template allows")
    checking.add_argument(
        "engine", metavar="SPEC", nargs="?", default="vllm", help="vllm[:MODEL] or sim[:PRESET] (vllm)"
    )
    add_engine_option(checking)
    checking.add_argument("--json", action="store_true", help="print the machine form")
    checking.set_defaults(command=doctor.command)
    bench.add_options(commands.add_parser("bench", help="measure the same agents in several modes, side by side"))
    capacity.add_options(commands.add_parser("capacity", help="say what a model and a memory hold; starts no engine"))
    advise.add_options(commands.add_parser("advise", help="say whether managing KV pays for a recorded workload"))
    return parser


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FILE[:NAME]", help="a Python file, and the agent or graph in it")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="default: the file's own prompt")
    parser.add_argument("--engine", metavar="SPEC", default="vllm", help="vllm[:MODEL] or sim[:PRESET] (vllm)")
    add_engine_option(parser)
    parser.add_argument("--store", metavar="STORE", default="memory", help="memory or sqlite:PATH (memory)")
    parser.add_argument(
        "--kv-transfer-mode",
        choices=get_args(TransferMode),
        default="auto",
        help="what is prefilled ahead, and whether cached KV is read (auto)",
    )
    parser.add_argument("--json", action="store_true", help="print the machine form of the report")
    parser.add_argument("--quiet", action="store_true", help="show nothing of the run while it goes on")
    parser.set_defaults(command=run.command)


if __name__ == "__main__":
    sys.exit(main())
