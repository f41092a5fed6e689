"""Which arguments vLLM is started with: what the user set, and defaults that suit an agent's work."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from agentkv.engines.model_folder import ModelFolder
from agentkv.errors import EngineStartError, NotSupported

__all__ = ("engine_arguments",)

GIB = 1 << 30
CPU_MAX_MODEL_LEN = 8192
# Interpreter, torch and activations of one step, seen with small models; weights and KV come on top.
CPU_OVERHEAD_BYTES = 3 * GIB // 2
# Engines that several processes schedule have a prefix cache each, and utility calls reach the first only.
SINGLE_SCHEDULER = ("data_parallel_size", "data_parallel_size_local", "api_server_count")


def engine_arguments(
    model: ModelFolder, options: Mapping[str, Any], *, known: Iterable[str], cpu_free_bytes: int | None
) -> dict[str, Any]:
    """Keyword arguments for ``AsyncEngineArgs``; ``options`` win over every default.

    ``known`` are the argument names of the installed vLLM. ``cpu_free_bytes`` is the memory free on a machine
    where vLLM runs on the CPU, None on an accelerator, whose own defaults are left alone.
    Raises ``EngineStartError`` (unknown name, too little memory) or ``NotSupported``.
    """
    _check_names(options, set(known))
    arguments: dict[str, Any] = {
        "model": model.name,
        "enable_prefix_caching": True,
        # The engine's own account of prompt tokens, which ours is checked against, needs its statistics.
        "disable_log_stats": False,
        "use_tqdm_on_load": False,
    }
    if cpu_free_bytes is not None:
        arguments |= _cpu_defaults(model, options, cpu_free_bytes)
    return arguments | dict(options)


def _check_names(options: Mapping[str, Any], known: set[str]) -> None:
    if "model" in options:
        raise EngineStartError("option 'model': name the model in the engine's spec instead ('vllm:MODEL')")
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name.replace("-", "_"), known, n=3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise EngineStartError(f"option {name!r} is none of vLLM's engine arguments{hint}")
    for name in SINGLE_SCHEDULER:
        if (value := options.get(name)) not in (None, 1):
            raise NotSupported(f"option {name}={value!r}: only one scheduler to an engine is supported; leave it out")


def _cpu_defaults(model: ModelFolder, options: Mapping[str, Any], free: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "dtype": "bfloat16",
        # Compiling takes minutes and gains little for models that are run on a CPU.
        "enforce_eager": True,
        # The smallest block that the CPU kernels are tuned for: what follows the last full block is recomputed.
        "block_size": 32,
        # A step is never interrupted, so this bounds what a request waits for: about a second of prefill.
        "max_num_batched_tokens": 512,
    }
    if model.max_positions is not None:
        defaults["max_model_len"] = min(model.max_positions, CPU_MAX_MODEL_LEN)
    length = options.get("max_model_len", defaults.get("max_model_len"))
    if options.get("kv_cache_memory_bytes") is None:
        defaults["kv_cache_memory_bytes"] = _cpu_pool_bytes(model, length, free)
    return defaults


def _cpu_pool_bytes(model: ModelFolder, max_model_len: object, free: int) -> int:
    """1 GiB, or room for two sequences of full length if that is more, within what is free."""
    per_token = model.kv_bytes_per_token
    one = per_token * max_model_len if per_token is not None and isinstance(max_model_len, int) else GIB // 4
    room = free - model.weight_bytes - CPU_OVERHEAD_BYTES
    if room < one:
        raise EngineStartError(
            f"model {model.name!r} does not fit in memory: {model.weight_bytes / GIB:.1f} GiB of weights, "
            f"{one / GIB:.1f} GiB of KV for one sequence of full length and about {CPU_OVERHEAD_BYTES / GIB:.1f} GiB "
            f"besides, but {free / GIB:.1f} GiB are free: free some, lower max_model_len, or take a smaller model"
        )
    return int(min(max(GIB, 2 * one), room))
