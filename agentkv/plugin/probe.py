"""What of vLLM's internals the scheduler relies on, looked at once when the engine starts."""

import re
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any

from attrs import frozen

__all__ = ("TESTED", "Probe", "probe")

#: Versions that the tests run against: first and last minor version, inclusive.
TESTED = ((0, 26), (0, 32))

SCHEDULER_METHODS = {
    "_connector_finished": ("request",),
    "_enqueue_waiting_request": ("request",),
    "_mamba_block_aligned_split": ("request", "num_new_tokens"),
    "_preempt_request": ("request", "timestamp"),
    "add_request": ("request",),
    "finish_requests": ("request_ids", "finished_status"),
    "get_num_unfinished_requests": (),
    "get_request_counts": (),
    "has_finished_requests": (),
    "reset_prefix_cache": ("reset_running_requests",),
    "schedule": (),
    "update_from_output": ("scheduler_output", "model_runner_output"),
}
SCHEDULER_FIELDS = (
    "block_size",
    "connector",
    "finished_req_ids",
    "kv_cache_config",
    "kv_cache_manager",
    "max_model_len",
    "max_num_running_reqs",
    "max_num_scheduled_tokens",
    "need_mamba_block_aligned_split",
    "policy",
    "requests",
    "running",
    "waiting",
)
MANAGER_METHODS = {
    "allocate_slots": ("request", "num_new_tokens", "num_new_computed_tokens", "new_computed_blocks"),
    "get_blocks": ("request_id",),
}
POOL_METHODS = {"free_blocks": (), "get_num_free_blocks": (), "touch": ()}
BLOCK_FIELDS = ("block_hash", "block_id", "is_null", "next_free_block", "prev_free_block", "ref_cnt")


@frozen
class Probe:
    """What was found: the version of vLLM, and why its KV cannot be managed (empty: it can)."""

    version: str
    problems: tuple[str, ...]


def probe(scheduler: Any, version: str) -> Probe:
    """Look at a constructed scheduler of vLLM ``version``. Raises nothing."""
    try:
        found = (*_version(version), *_internals(scheduler), *_setup(scheduler))
    except Exception as error:  # noqa: BLE001 - an engine must start on whatever vLLM this is
        found = (f"probing failed: {type(error).__name__}: {error}",)
    return Probe(version, found)


def _version(version: str) -> Iterator[str]:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or not TESTED[0] <= (int(numbers[1]), int(numbers[2])) <= TESTED[1]:
        first, last = (".".join(map(str, each)) for each in TESTED)
        yield f"vLLM {version} is outside the tested versions {first} to {last}"


def _internals(scheduler: Any) -> Iterator[str]:
    yield from _methods(scheduler, SCHEDULER_METHODS)
    yield from (f"Scheduler.{name} is missing" for name in SCHEDULER_FIELDS if not hasattr(scheduler, name))
    manager = scheduler.kv_cache_manager
    yield from _methods(manager, MANAGER_METHODS)
    pool = manager.block_pool
    yield from _methods(pool, POOL_METHODS)
    yield from (f"KVCacheBlock.{name} is missing" for name in BLOCK_FIELDS if not hasattr(pool.blocks[0], name))
    for name in ("fake_free_list_head", "num_free_blocks"):
        if not hasattr(pool.free_block_queue, name):
            yield f"FreeKVCacheBlockQueue.{name} is missing"


def _methods(owner: Any, wanted: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name, parameters in wanted.items():
        # Our own overrides say nothing: the first class that is vLLM's must have the method.
        method = next((vars(c)[name] for c in type(owner).__mro__ if _is_vllms(c) and name in vars(c)), None)
        if method is None:
            yield f"{type(owner).__mro__[-2].__name__}.{name} is missing"
        elif missing := set(parameters) - set(signature(method).parameters):
            yield f"{name}() no longer takes {', '.join(sorted(missing))}"


def _is_vllms(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "vllm"


def _setup(scheduler: Any) -> Iterator[str]:
    """Set-ups in which leases would not mean what they say."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    groups = scheduler.kv_cache_config.kv_cache_groups
    parallel = scheduler.vllm_config.parallel_config
    if not scheduler.cache_config.enable_prefix_caching:
        yield "prefix caching is off"
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        yield "the model's layers are not all of one full-attention kind"
    if getattr(scheduler, "hash_block_size", scheduler.block_size) != scheduler.block_size:
        yield "blocks are hashed in another size than they are kept in"
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        yield "context parallelism spreads a block over ranks"
    if parallel.data_parallel_size > 1:
        yield "with data parallelism utility calls reach one rank only: start one engine per rank instead"
