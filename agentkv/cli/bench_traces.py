"""``agentkv bench replay`` and ``hashes``: their options, and the workloads that these ask for."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import (
    DelayScaling,
    Hashes,
    Replay,
    Teller,
    WaitingTimes,
    choose_sessions,
    choose_stories,
    find_chat,
    read_think_times,
)
from agentkv.cli.bench_options import parse_delay
from agentkv.cli.engine_options import parse_engine_options
from agentkv.cli.help_format import DefaultsFormatter
from agentkv.cli.option_names import about, check_least
from agentkv.counted import counted
from agentkv.errors import SetupError
from agentkv.trace import TraceKind, find_files, trace_kind

__all__ = ("add_traces", "find_trajectories")

TEXT = (".jsonl", ".jsonl.gz")
HASHES = (".json", ".json.gz", *TEXT)
BY_HASH: tuple[TraceKind, ...] = ("session hashes", "request hashes")


def add_traces(
    workloads: Any,
    common: Callable[[argparse.ArgumentParser], None],
    command: Callable[[argparse.Namespace], int],
) -> None:
    """Declare both workloads; ``common`` declares the options that every workload has, ``command`` runs it."""
    for name, what, options, make in (
        ("replay", "recorded conversations, word by word", _replay_options, _replay),
        ("hashes", "recorded sessions of which only the hashes of blocks are known", _hashes_options, _hashes),
    ):
        parser = workloads.add_parser(name, help=what, formatter_class=DefaultsFormatter)
        common(parser)
        options(parser)
        parser.set_defaults(command=command, workload=make)


def _trace_options(parser: argparse.ArgumentParser, what: str, scaled: str) -> None:
    parser.add_argument("--trace", metavar="PATH", type=Path, nargs="+", required=True, help=f"{what}, or folders")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="of an agent's chain at its longest")
    parser.add_argument("--delay-cap", metavar="SECONDS", type=float, help="no wait is longer")
    parser.add_argument("--delay-scale", metavar="F", type=float, default=1.0, help=scaled)
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of all that is drawn")


def _replay_options(parser: argparse.ArgumentParser) -> None:
    _trace_options(parser, "files with a conversation a line", "that transplanted waits are multiplied by")
    parser.add_argument("--chains", metavar="N", type=int, help="agents; left out: each conversation once")
    parser.add_argument("--min-tokens", metavar="N", type=int, default=0, help="as --max-tokens")
    parser.add_argument("--tokenizer", metavar="PATH", type=Path, help="folder; left out: the engine's own")
    parser.add_argument(
        "--think-times",
        metavar="PATH",
        type=Path,
        nargs="+",
        help="sessions whose think times stand in for missing ones",
    )
    parser.add_argument("--tool-seconds", metavar="LO:HI", default="1:3", help="where nothing else is known")
    parser.add_argument("--user-seconds", metavar="LO:HI", default="2:10", help="as --tool-seconds, for users")
    parser.add_argument("--start-spread", metavar="SECONDS", type=float, default=12.0, help="over which they arrive")


def _hashes_options(parser: argparse.ArgumentParser) -> None:
    _trace_options(parser, "kv-cache-tester's or Mooncake's files", "that recorded times are multiplied by")
    parser.add_argument("--limit", metavar="N", type=int, help="sessions, or requests without one")
    parser.add_argument("--start-spread", metavar="SECONDS", type=float, help="left out: as recorded")


def _replay(options: argparse.Namespace) -> Replay:
    check_least(options, chains=1, min_tokens=0, max_tokens=1, start_spread=0)
    if options.think_times is None and options.delay_scale != 1:
        raise SetupError(
            "--delay-scale multiplies transplanted waits, of which there are none without --think-times PATH"
        )
    files = find_trajectories(options.trace)
    chat, folder = find_chat(options.engine, parse_engine_options(options.engine_option), options.tokenizer, _progress)
    times = WaitingTimes(
        tool=parse_delay("--tool-seconds", options.tool_seconds),
        user=parse_delay("--user-seconds", options.user_seconds),
        think=None if options.think_times is None else read_think_times(_think_files(options.think_times)),
        scaling=DelayScaling(scale=options.delay_scale, cap=options.delay_cap),
    )
    _progress(f"rendering conversations of {counted(len(files), 'file')}")
    stories = choose_stories(
        files,
        Teller(chat).tell,
        chains=options.chains,
        tokens=(options.min_tokens, options.max_tokens),
        seed=options.seed,
    )
    source = {"trace": [file.name for file in files], "tokenizer": folder.name}
    return Replay(stories=stories, times=times, start_spread=options.start_spread, seed=options.seed, source=source)


def _hashes(options: argparse.Namespace) -> Hashes:
    check_least(options, limit=1, max_tokens=1, start_spread=0)
    files = _files("--trace", options.trace, HASHES, BY_HASH)
    sessions, cut = choose_sessions(files, limit=options.limit, longest=options.max_tokens, seed=options.seed)
    return Hashes(
        sessions=sessions,
        cut=cut,
        scaling=DelayScaling(scale=options.delay_scale, cap=options.delay_cap),
        start_spread=options.start_spread,
        seed=options.seed,
        source={"trace": [file.name for file in files]},
    )


def find_trajectories(paths: Sequence[Path]) -> list[Path]:
    """The files of conversations that ``paths``, given by ``--trace``, name. Raises ``SetupError``."""
    return _files("--trace", paths, TEXT, ("trajectories",))


def _think_files(paths: Sequence[Path]) -> list[Path]:
    return _files("--think-times", paths, HASHES, BY_HASH)


def _files(option: str, paths: Sequence[Path], endings: tuple[str, ...], kinds: tuple[TraceKind, ...]) -> list[Path]:
    """The files that ``option`` names, all of one of ``kinds``. Raises ``SetupError``, which names both."""
    with about(option):
        found = find_files(paths, endings)
        for file in found:
            if (kind := trace_kind(file)) not in kinds:
                raise SetupError(f"{file} holds {kind}; what is needed here are {' or '.join(kinds)}")
    return found


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
