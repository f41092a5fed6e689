"""``agentkv advise``: whether managing KV pays for a recorded workload, and what to set."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from attrs import asdict

from agentkv.cli.memory import add_memory_options, make_pool, read_budget, read_model, refuse_parts
from agentkv.cli.option_names import check_least, naming_options
from agentkv.cli.size import parse_bytes
from agentkv.errors import JournalError, SetupError, StoreError
from agentkv.report import (
    Advice,
    Demand,
    Memory,
    RecordedPrompt,
    advise,
    demand_of,
    prompts_of_journal,
    prompts_of_sessions,
    prompts_of_trajectories,
)
from agentkv.report.recorded import CHARACTERS_A_TOKEN
from agentkv.store import SQLiteStore
from agentkv.trace import read_hashes, read_trajectories, trace_kind

__all__ = ("add_options", "command")

SCHEMA = "agentkv.advise/1"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agentkv advise``."""
    parser.add_argument(
        "trace", metavar="TRACE", type=Path, help="a journal (--store sqlite:PATH), trajectories, or block hashes"
    )
    parser.add_argument("--model", metavar="MODEL", type=Path, help="a model's folder, or its config.json")
    add_memory_options(parser)
    parser.add_argument("--json", action="store_true", help="print the machine form")
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Read the trace, answer, print."""
    with naming_options(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    check_least(options, block_size=1)
    memory = _memory(options)
    demand = _demand(options.trace, options.block_size)
    advice = advise(demand, memory)
    print(json.dumps(_json(demand, advice), indent=2) if options.json else "\n".join(_lines(demand, advice)))
    return 0


def _memory(options: argparse.Namespace) -> Memory | None:
    if (options.model is None) != (options.memory is None):
        raise SetupError("--model and --memory go together: a pool is what a model leaves of a memory")
    if options.model is None:
        refuse_parts(options)
        return None
    shape = read_model(options.model)
    budget = read_budget(options)
    if budget is None:
        return None
    shape.check_split(options.tensor_parallel)
    pool = make_pool(shape, budget, options)
    return Memory(
        total=parse_bytes("--memory", options.memory),
        kv=budget.pool,
        pool_tokens=pool.blocks * options.block_size if pool.tokens is None else pool.tokens,
        leasable_tokens=pool.leasable * options.block_size,
    )


def _demand(path: Path, block_size: int) -> Demand:
    kind = trace_kind(path)
    if kind == "journal":
        prompts = _journalled(path)
        source = "a journal of runs; tokens and times as the engine had them"
    elif kind == "trajectories":
        prompts = prompts_of_trajectories(read_trajectories(path), block_size=block_size)
        source = f"recorded conversations; a token is taken for {CHARACTERS_A_TOKEN} characters"
    else:
        sessions = list(read_hashes(path))
        prompts, block_size = prompts_of_sessions(sessions), max(session.block_size for session in sessions)
        source = f"recorded requests with hashes of blocks of {block_size} tokens"
    if not prompts:
        raise SetupError(f"{path} holds no finished generation, so there is nothing to judge by")
    return demand_of(source, prompts, block_size=block_size)


def _journalled(path: Path) -> list[RecordedPrompt]:
    try:
        return prompts_of_journal(anyio.run(_events, path))
    except JournalError as error:
        raise SetupError(f"{path}: {error}") from error


async def _events(path: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    store = SQLiteStore(path)
    try:
        await store.open()
        try:
            return {run.run_id: await store.load(run.run_id) for run in await store.runs()}
        finally:
            await store.aclose()
    except StoreError as error:
        raise SetupError(str(error)) from error


def _json(demand: Demand, advice: Advice) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "demand": asdict(demand),
        "answers": [asdict(answer) for answer in advice.answers],
        "verdict": advice.verdict,
        "settings": [
            {"name": name, "value": value, "reason": reason} for name, (value, reason) in advice.settings.items()
        ],
    }


def _lines(demand: Demand, advice: Advice) -> list[str]:
    lines = [f"trace     {demand.source}", ""]
    for number, answer in enumerate(advice.answers, 1):
        lines += [f"{number}. {answer.question}", f"   {answer.verdict}: {answer.reason}"]
        if answer.missing:
            lines.append(f"   missing: {answer.missing}")
    lines += ["", advice.verdict, "", "set"]
    width = max(map(len, advice.settings))
    lines += [f"  {name:<{width}} {value!r:<16} {reason}" for name, (value, reason) in advice.settings.items()]
    return lines
