"""The synchronous door: one run, its runtime opened and closed around it."""

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

import anyio

from agentkv.config import MANAGED, EngineKV
from agentkv.engines import Engine
from agentkv.runtime.result import Result
from agentkv.runtime.runtime import Runnable, RunOptions, Runtime
from agentkv.store import Store

__all__ = ("run_sync",)

Deps = TypeVar("Deps")
Output = TypeVar("Output")


@overload
def run_sync(
    target: Runnable[None, Output],
    prompt: str,
    *,
    engine: str | Engine = "vllm",
    store: str | Store = "memory",
    options: Mapping[str, Any] | None = None,
    engine_kv: EngineKV | None = MANAGED,
    **run_options: Unpack[RunOptions],
) -> Result[Output]: ...
@overload
def run_sync(
    target: Runnable[Deps, Output],
    prompt: str,
    *,
    deps: Deps,
    engine: str | Engine = "vllm",
    store: str | Store = "memory",
    options: Mapping[str, Any] | None = None,
    engine_kv: EngineKV | None = MANAGED,
    **run_options: Unpack[RunOptions],
) -> Result[Output]: ...
def run_sync(
    target: Runnable[Any, Any],
    prompt: str,
    *,
    deps: Any = None,
    engine: str | Engine = "vllm",
    store: str | Store = "memory",
    options: Mapping[str, Any] | None = None,
    engine_kv: EngineKV | None = MANAGED,
    **run_options: Unpack[RunOptions],
) -> Result[Any]:
    """Open a runtime, run, close it: the only synchronous door. Not to be called from a running event loop.

    ``options`` and ``engine_kv`` are the engine's; the rest is as for ``Runtime`` and ``Runtime.run``.
    """

    async def main() -> Result[Any]:
        async with Runtime(engine, store=store, options=options, engine_kv=engine_kv) as runtime:
            return await runtime.run(target, prompt, deps=deps, **run_options)

    return anyio.run(main)
