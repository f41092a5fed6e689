"""Starting vLLM in this process: what is checked first, how it is configured, and its failures in one line."""

import asyncio
import dataclasses
import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import frozen

from agentkv.engines.demo_model import demo_model_path
from agentkv.engines.guard import require_entry_guard
from agentkv.engines.host_memory import free_host_bytes
from agentkv.engines.model_folder import ModelFolder, find_model
from agentkv.engines.vllm_options import engine_arguments
from agentkv.engines.vllm_tier import check_tier, tier_bytes
from agentkv.errors import EngineStartError, SetupError
from agentkv.plugin.start_report import REPORT

__all__ = ("StartedLLM", "one_line", "start_llm", "start_report", "stop_llm")

OLDEST, NEWEST = (0, 26), (0, 32)
INSTALL = (
    "pip install 'agentkv[cpu]' (x86-64 Linux), or on a machine with a GPU that vLLM supports "
    "pip install 'agentkv[vllm]'; without either use the engine 'sim'"
)
MISMATCH = (
    "if it names torchvision or torchaudio, wheels for another torch came along with vLLM's CPU build: "
    "pip uninstall -y torchvision torchaudio torchcodec"
)
TICK_SECONDS = 5.0
STOP_SECONDS = 20.0


@frozen(kw_only=True)
class StartedLLM:
    """A running ``vllm.v1.engine.async_llm.AsyncLLM`` and what was learnt while starting it."""

    llm: Any
    model: str
    model_path: str
    version: str


async def start_llm(model: str | None, options: Mapping[str, Any], report: Callable[[str], None]) -> StartedLLM:
    """Start vLLM for ``model`` (None: the demo model); ``report`` gets a line every few seconds.

    The work is done in a worker thread: the event loop stays free, but a cancelled start ends only when the
    engine is up, and then takes it down again. Raises ``EngineStartError`` or ``NotSupported``.
    """
    _check_entry()
    began = anyio.current_time()
    start = _Start(model, options, report)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_tick, began, report)
            await anyio.to_thread.run_sync(start.run)
            group.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()
        ready = start.take()
    except BaseException:
        if start.ready is not None:
            await stop_llm(start.take().llm)
        raise
    report(f"vLLM is ready after {anyio.current_time() - began:.0f} s")
    return ready


async def stop_llm(llm: Any) -> None:
    """Shut ``llm`` down and wait for its tasks to end, so that nothing of it outlives the call."""
    resources = llm.engine_core.resources
    with anyio.CancelScope(shield=True):
        # First of all: it would take the closing of its sockets for the engine's death, and log that.
        await _cancelled(llm.output_handler)
        # vLLM's default kills the engine process after five seconds, which its orderly end can take.
        await anyio.to_thread.run_sync(partial(llm.shutdown, timeout=STOP_SECONDS))
        await _cancelled(resources.output_queue_task)
        # vLLM closes the sockets and leaves their context, with its threads, to the garbage collector.
        with anyio.move_on_after(STOP_SECONDS):
            await anyio.to_thread.run_sync(resources.ctx.term, abandon_on_cancel=True)


async def _cancelled(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=STOP_SECONDS)


async def _tick(began: float, report: Callable[[str], None]) -> None:
    while True:
        await anyio.sleep(TICK_SECONDS)
        report(f"starting vLLM: {anyio.current_time() - began:.0f} s")


def _check_entry() -> None:
    # vLLM forks by default where it can. A forked child of a process with threads and an event loop may hang,
    # so processes are spawned unless the user decided otherwise. vLLM offers the environment alone for this.
    if os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn") != "fork":
        require_entry_guard()


class _Start:
    """One start, made in a worker thread. A failure is kept, since a task group would wrap it in a group."""

    def __init__(self, model: str | None, options: Mapping[str, Any], report: Callable[[str], None]) -> None:
        self.model = model
        self.options = options
        self.report = report
        self.ready: StartedLLM | None = None
        self.failure: SetupError | None = None

    def take(self) -> StartedLLM:
        """Hand over what was started, keeping no reference to it, or raise what went wrong."""
        ready, self.ready = self.ready, None
        if self.failure is not None:
            raise self.failure
        assert ready is not None
        return ready

    def run(self) -> None:
        try:
            self.ready = self._start()
        except SetupError as error:
            self.failure = error

    def _start(self) -> StartedLLM:
        if importlib.util.find_spec("vllm") is None:
            raise EngineStartError(f"vLLM is not installed: {INSTALL}")
        model = find_model(
            self.model or str(demo_model_path(self.report)),
            self.options.get("revision"),
            # token ids in and out need no tokenizer; an agent does, and is told when its runtime opens
            tokenizer=not self.options.get("skip_tokenizer_init"),
        )
        tokenizer = self.options.get("tokenizer")
        reads = model if tokenizer is None else find_model(tokenizer, self.options.get("tokenizer_revision"))
        version, device = _load()
        usual = "; 20 to 35 s on two idle cores" if device == "cpu" else ""
        self.report(f"starting vLLM {version} on {device}: model {model.name}{usual}")
        # No local name for it: vLLM keeps tracebacks, they keep this frame, and it would keep the engine alive.
        return StartedLLM(
            llm=_make(model, self.options, device), model=model.name, model_path=str(reads.path), version=version
        )


def _load() -> tuple[str, str]:
    """Import vLLM; its version and the kind of device it runs on."""
    # Read by vLLM when it is imported, here and in the processes it starts. Its warnings are about choices that
    # were made here on purpose (eager mode, our scheduler) or about what a CPU machine cannot have.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", os.environ.get("AGENTKV_VLLM_LOG") or "ERROR")
    try:
        import vllm
        from vllm.platforms import current_platform
    except Exception as error:
        # A build for another torch or another machine fails in ways of its own: missing symbols, no operator.
        raise EngineStartError(f"vLLM is installed but cannot be imported ({one_line(error)}): {INSTALL}") from error
    _check_version(vllm.__version__)
    if not current_platform.device_type:
        raise EngineStartError(f"vLLM finds no device that this build of it can use: {INSTALL}")
    return vllm.__version__, current_platform.device_type


def _check_version(version: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or not OLDEST <= (int(match[1]), int(match[2])) <= NEWEST:
        warnings.warn(
            f"vLLM {version} is outside of what agentkv was tested with "
            f"({'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))})",
            RuntimeWarning,
            stacklevel=2,
        )


def _make(model: ModelFolder, options: Mapping[str, Any], device: str) -> Any:
    try:
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    except Exception as error:
        raise EngineStartError(f"vLLM is installed but cannot be imported ({one_line(error)}): {MISMATCH}") from error

    known = [field.name for field in dataclasses.fields(AsyncEngineArgs)]
    far = tier_bytes(options)
    free = _free_bytes(device) if device == "cpu" or far else None
    check_tier(far, model, free)
    on_cpu = free - far if free is not None and device == "cpu" else None
    arguments = engine_arguments(model, options, known=known, cpu_free_bytes=on_cpu)
    if isinstance(connector := arguments.get("kv_transfer_config"), dict):
        arguments["kv_transfer_config"] = KVTransferConfig(**connector)
    with start_report() as reported:
        try:
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        except Exception as error:
            why = reported() or f"{one_line(error)}{_more()}"
            raise EngineStartError(f"vLLM did not start with model {model.name!r}: {why}") from error


@contextmanager
def start_report() -> Iterator[Callable[[], str]]:
    """What an error of ours in vLLM's processes says, where one ends the start inside; else an empty text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "reason"
        os.environ[REPORT] = str(file)
        try:
            yield lambda: file.read_text(encoding="utf-8") if file.exists() else ""
        finally:
            # Engines that start side by side in threads of one process share the variable.
            os.environ.pop(REPORT, None)


def _more() -> str:
    if "AGENTKV_VLLM_LOG" in os.environ:
        return ""
    return " (AGENTKV_VLLM_LOG=INFO shows vLLM's own account)"


def _free_bytes(device: str) -> int:
    if device != "cpu":
        import psutil  # comes with vLLM

        return free_host_bytes(psutil.virtual_memory().available)
    # vLLM's own measure: it knows memory nodes and the limits of containers, and refuses by it.
    from vllm.utils.cpu_resource_utils import get_memory_node_info, get_visible_memory_node

    return int(get_memory_node_info(get_visible_memory_node()[0]).available_memory)


def one_line(error: BaseException) -> str:
    """The first line of an error's message that says something, or its type's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
