"""The memory of a device as the options of a command describe it, and the KV pool that is left of it."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from agentkv.cli.option_names import check_least, flag_of
from agentkv.cli.size import parse_bytes, show_bytes
from agentkv.errors import SetupError
from agentkv.kv import DTYPE_BYTES, KVPool, ModelShape, pool_of

__all__ = ("Budget", "add_memory_options", "dtype_bytes_of", "make_pool", "read_budget", "read_model", "refuse_parts")


def add_memory_options(parser: argparse.ArgumentParser) -> None:
    """Declare what decides the size of a pool."""
    parser.add_argument("--memory", metavar="BYTES", help="of one device, as 80GiB; without it: bytes a token only")
    parser.add_argument("--gpu-memory-utilization", metavar="R", type=float, default=0.9, help="of it, to use (0.9)")
    parser.add_argument("--weights-bytes", metavar="BYTES", help="of the whole model; default: its files in the folder")
    parser.add_argument("--overhead-bytes", metavar="BYTES", help="activations and graphs on a device; default: none")
    parser.add_argument("--tensor-parallel", metavar="N", type=int, default=1, help="devices to split the model over")
    parser.add_argument("--kv-dtype", choices=("auto", *DTYPE_BYTES), default="auto", help="of values in the KV cache")
    parser.add_argument("--kv-pool-ratio", metavar="R", type=float, default=0.85, help="of the pool, for leases (0.85)")
    parser.add_argument(
        "--disable-hybrid-kv-cache-manager",
        action="store_true",
        help="sliding layers beside full ones keep everything, as vLLM has it with this option, and on CPUs",
    )
    parser.add_argument("--block-size", metavar="N", type=int, default=16, help="tokens in a KV block (16)")


@frozen(kw_only=True)
class Budget:
    """Bytes of one device: what an engine may use, what its part of the weights and all else take."""

    usable: int
    weights: int
    overhead: int

    @property
    def pool(self) -> int:
        """What is left for KV."""
        return self.usable - self.weights - self.overhead


def refuse_parts(options: argparse.Namespace) -> None:
    """Raise ``SetupError`` naming what is to be taken from a memory where none is given."""
    for name in ("weights_bytes", "overhead_bytes"):
        if getattr(options, name) is not None:
            raise SetupError(f"{flag_of(name)} is a part of --memory BYTES: give that, too, or leave it out")


def read_model(path: Path) -> ModelShape:
    """The shape of the model at ``path``. Raises ``SetupError`` that names the file and what is wrong with it."""
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise SetupError(f"there is no file {str(file)!r}; name a model's folder or its config.json")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{file} is not JSON: {error}") from None
    if not isinstance(config, Mapping):
        raise SetupError(f"{file} holds no JSON object, so it is no model's configuration")
    try:
        return ModelShape.read(config)
    except SetupError as error:
        raise type(error)(f"{file}: {error}") from None


def read_budget(options: argparse.Namespace) -> Budget | None:
    """The memory of one device by the options, None without ``--memory``. Raises ``SetupError`` if nothing is left."""
    check_least(options, tensor_parallel=1, block_size=1)
    for name in ("gpu_memory_utilization", "kv_pool_ratio"):
        if not 0 < getattr(options, name) <= 1:
            raise SetupError(f"{flag_of(name)} {getattr(options, name)} must be above 0 and at most 1")
    if options.memory is None:
        refuse_parts(options)
        return None
    overhead = parse_bytes("--overhead-bytes", options.overhead_bytes) if options.overhead_bytes else 0
    budget = Budget(
        usable=int(parse_bytes("--memory", options.memory) * options.gpu_memory_utilization),
        weights=_weights(options) // options.tensor_parallel,
        overhead=overhead,
    )
    if budget.pool <= 0:
        raise SetupError(
            f"nothing is left for KV: {show_bytes(budget.usable)} of a device may be used, "
            f"{show_bytes(budget.weights + overhead)} are taken; give more --memory or a larger --tensor-parallel"
        )
    return budget


def make_pool(shape: ModelShape, budget: Budget, options: argparse.Namespace) -> KVPool:
    """The pool of one device. Raises ``SetupError`` for a split that the model does not allow, and an empty pool."""
    pool = pool_of(
        shape.layers,
        pool_bytes=budget.pool,
        block_size=options.block_size,
        dtype_bytes=dtype_bytes_of(shape, options),
        tensor_parallel=options.tensor_parallel,
        ratio=options.kv_pool_ratio,
        hybrid=not options.disable_hybrid_kv_cache_manager,
    )
    if pool.blocks < 1:
        raise SetupError(
            f"{show_bytes(budget.pool)} hold no two blocks of {options.block_size} tokens, "
            f"{show_bytes(pool.block_bytes)} each; give more --memory"
        )
    return pool


def dtype_bytes_of(shape: ModelShape, options: argparse.Namespace) -> int:
    """Bytes of one value in the KV cache, as the options or else the model have it."""
    return DTYPE_BYTES[shape.kv_dtype if options.kv_dtype == "auto" else options.kv_dtype]


def _weights(options: argparse.Namespace) -> int:
    if options.weights_bytes is not None:
        return 0 if options.weights_bytes.strip() == "0" else parse_bytes("--weights-bytes", options.weights_bytes)
    folder = options.model if options.model.is_dir() else options.model.parent
    found: int = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if not found:
        raise SetupError(
            f"{str(folder)!r} has no weights (*.safetensors) to count: give --weights-bytes, or 0 if --memory is all "
            "for KV"
        )
    return found
