"""``agentkv capacity``: what a model, a memory, a ratio and a split hold, before anything is started."""

import argparse
import json
from pathlib import Path
from typing import Any

from agentkv.cli.memory import (
    Budget,
    add_memory_options,
    dtype_bytes_of,
    make_pool,
    read_budget,
    read_model,
)
from agentkv.cli.option_names import check_least, naming_options
from agentkv.cli.size import show_bytes
from agentkv.counted import counted
from agentkv.errors import SetupError
from agentkv.kv import KVPool, ModelShape, bytes_per_token

__all__ = ("add_options", "command")

SCHEMA = "agentkv.capacity/1"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agentkv capacity``."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="a model's folder, or its config.json")
    add_memory_options(parser)
    parser.add_argument("--prompt-tokens", metavar="N", type=int, default=6000, help="of a chain, all of it (6000)")
    parser.add_argument("--anchor-tokens", metavar="N", type=int, default=2000, help="of these, its agent's (2000)")
    parser.add_argument("--branches", metavar="N", type=int, default=0, help="of each chain (0)")
    parser.add_argument("--branch-tokens", metavar="N", type=int, default=500, help="of each branch (500)")
    parser.add_argument("--json", action="store_true", help="print the machine form")
    parser.set_defaults(command=command)


def command(options: argparse.Namespace) -> int:
    """Read the model's configuration, count, print."""
    with naming_options(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    _check(options)
    shape = read_model(options.model)
    budget = read_budget(options)
    pool = make_pool(shape, budget, options) if budget is not None else None
    findings = _findings(shape, budget, pool, options)
    print(json.dumps(findings, indent=2) if options.json else "\n".join(_lines(findings)))
    return 0


def _check(options: argparse.Namespace) -> None:
    check_least(options, prompt_tokens=1, branch_tokens=1, anchor_tokens=0, branches=0)
    if options.anchor_tokens > options.prompt_tokens:
        raise SetupError(
            f"--anchor-tokens {options.anchor_tokens} is more than --prompt-tokens {options.prompt_tokens}, "
            "of which it is a part"
        )


def _findings(
    shape: ModelShape, budget: Budget | None, pool: KVPool | None, options: argparse.Namespace
) -> dict[str, Any]:
    shape.check_split(options.tensor_parallel)
    dtype_bytes, split = dtype_bytes_of(shape, options), options.tensor_parallel
    findings: dict[str, Any] = {
        "schema": SCHEMA,
        "model": shape.model_type,
        "layers": [
            {
                "layers": kind.layers,
                "kv_heads": kind.kv_heads,
                "kv_heads_on_device": kind.heads_on_device(split),
                "key_values": kind.head_size,
                "value_values": kind.value_size,
                "window": kind.window,
            }
            for kind in shape.layers
        ],
        "kv_dtype": shape.kv_dtype if options.kv_dtype == "auto" else options.kv_dtype,
        "tensor_parallel": split,
        "block_size": options.block_size,
        "bytes_per_token": bytes_per_token(shape.layers, dtype_bytes=dtype_bytes, tensor_parallel=split),
    }
    if budget is None or pool is None:
        return findings
    return {**findings, "memory": _memory(budget), "pool": _pool(pool), "leased": _leased(pool, options)}


def _memory(budget: Budget) -> dict[str, int]:
    return {
        "usable": budget.usable,
        "weights": budget.weights,
        "overhead": budget.overhead,
        "kv": budget.pool,
    }


def _pool(pool: KVPool) -> dict[str, Any]:
    return {
        "blocks": pool.blocks,
        "block_bytes": pool.block_bytes,
        "longest_sequence": pool.tokens,
        "leasable_blocks": pool.leasable,
        "ratio": pool.ratio,
        "groups": [{"layers": group.layers, "window": group.window} for group in pool.groups],
    }


def _leased(pool: KVPool, options: argparse.Namespace) -> dict[str, int]:
    prompt, branch = options.prompt_tokens, options.branch_tokens
    return {
        "prompt_tokens": prompt,
        "anchor_tokens": options.anchor_tokens,
        "branches_of_each_chain": options.branches,
        "branch_tokens": branch,
        "chains": pool.chains(prompt=prompt, anchor=options.anchor_tokens, branches=options.branches, branch=branch),
        "anchors": pool.anchors(options.anchor_tokens),
        "branches": pool.branches(prompt=prompt, branch=branch),
    }


def _lines(findings: dict[str, Any]) -> list[str]:
    each, size = findings["bytes_per_token"], findings["block_size"]
    lines = [
        f"model     {findings['model']}, KV in {findings['kv_dtype']}",
        *(f"          {_layer_line(entry)}" for entry in findings["layers"]),
        f"a token   {each:,} bytes on each of {findings['tensor_parallel']} devices"
        if findings["tensor_parallel"] > 1
        else f"a token   {each:,} bytes",
    ]
    if "pool" not in findings:
        return [*lines, f"1 GiB     {(1 << 30) // (each * size) * size:,} tokens (give --memory for a device's pool)"]
    memory, pool, leased = findings["memory"], findings["pool"], findings["leased"]
    taken = f"{show_bytes(memory['weights'])} of weights"
    if memory["overhead"]:
        taken += f" - {show_bytes(memory['overhead'])} besides"
    longest = "of any length" if pool["longest_sequence"] is None else f"of up to {pool['longest_sequence']:,} tokens"
    branches = (
        f", each with {counted(leased['branches_of_each_chain'], 'branch')}" if leased["branches_of_each_chain"] else ""
    )
    chains = f"{leased['chains']:,} chains of {leased['prompt_tokens']:,} tokens"
    lines += [
        f"memory    {show_bytes(memory['usable'])} to use - {taken} = {show_bytes(memory['kv'])} for KV on a device",
        f"pool      {pool['blocks']:,} blocks of {size} tokens: one sequence {longest}",
        f"leases    hold at most {pool['ratio']:.0%} of them, {pool['leasable_blocks']:,} blocks, which is one of:",
        f"          {chains} that share an anchor of {leased['anchor_tokens']:,}{branches}",
        f"          {leased['anchors']:,} different anchors",
        f"          {leased['branches']:,} branches of {leased['branch_tokens']:,} tokens on one such chain",
    ]
    if any(group["window"] for group in pool["groups"]):
        lines.append("          (an engine that drops what is out of a window runs without leases)")
    return lines


def _layer_line(entry: dict[str, Any]) -> str:
    reach = "all tokens" if entry["window"] is None else f"the last {entry['window']:,} tokens"
    layers = counted(entry["layers"], "layer")
    if not entry["value_values"]:
        return f"{layers} with {reach}: one latent vector of {entry['key_values']} values, on each device"
    heads = f"{counted(entry['kv_heads'], 'KV head')} of {entry['key_values']}"
    if entry["kv_heads_on_device"] != entry["kv_heads"]:
        heads += f", {entry['kv_heads_on_device']} on each device"
    return f"{layers} with {reach}: {heads}"
