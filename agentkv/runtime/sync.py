"""The synchronous door: one run, its runtime opened and closed around it."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

import anyio

from agentkv.config import MANAGED, EngineKV
from agentkv.engines import Engine
from agentkv.errors import SetupError
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

    ``options`` and ``engine_kv`` are the engine's; the rest is as for ``Runtime`` and ``Runtime.run``. Raises
    ``SetupError`` in a running event loop, and for an engine that runs already: it belongs to the loop that it was
    started on.
    """
    _check_alone(engine)

    async def main() -> Result[Any]:
        async with Runtime(engine, store=store, options=options, engine_kv=engine_kv) as runtime:
            return await runtime.run(target, prompt, deps=deps, **run_options)

    return anyio.run(main)


def _check_alone(engine: str | Engine) -> None:
    if not isinstance(engine, str) and engine.started:
        name = engine.info.name
        raise SetupError(f"run_sync(engine=...): {name!r} runs already, on a loop of its own; await rt.run() there")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SetupError("run_sync() was called in a running event loop; use akv.Runtime and await its run()")
