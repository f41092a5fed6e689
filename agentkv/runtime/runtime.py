"""The one thing that runs agents: an engine, a journal and a KV policy, opened together."""

import secrets
from collections.abc import Callable, Hashable, Mapping
from contextlib import AsyncExitStack
from functools import lru_cache
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

import anyio
from attrs import evolve

from agentkv.chain import ChatFormat
from agentkv.config import MANAGED, EngineKV, KVConfig, Limits
from agentkv.engines import Engine, open_engine
from agentkv.errors import EngineUnavailable, SetupError
from agentkv.graph import Agent, CompiledGraph, Graph, compile, standard_graph
from agentkv.kv import Record
from agentkv.runtime.agent_chain import AgentChain, open_chain
from agentkv.runtime.program import Program, make_program
from agentkv.runtime.result import Result
from agentkv.runtime.run import Run
from agentkv.runtime.services import Order, share
from agentkv.store import Store, kept_memos, open_store, opened
from agentkv.tools import clean_text

__all__ = ("RunOptions", "Runnable", "Runtime", "compiled")

Deps = TypeVar("Deps")
Output = TypeVar("Output")
Runnable: TypeAlias = Agent[Deps, Output] | Graph[Deps, Output]

# Graphs made ready for the model, the oldest forgotten first: programs that declare agents on the fly stay bounded.
PROGRAMS_KEPT = 256
# How long a runtime that is closed waits for the runs that are still alive to end.
CLOSE_SECONDS = 30.0


class RunOptions(TypedDict, total=False):
    """What one run may have otherwise than its runtime: limits, KV policy, the tenant's salt (None: the runtime's).

    ``working_set``: tokens that the run will hold at its largest, for admission; estimated where it is not given.
    """

    limits: Limits
    kv: KVConfig
    cache_salt: str | None
    working_set: int


class Runtime:
    """Runs agents and graphs on one engine.

    ``engine`` is a SPEC (``vllm[:MODEL]``, ``sim[:PRESET]``) or an engine, which is left running if it was
    started already. ``options`` are the start options of one named by its SPEC, ``engine_kv`` is how it is to
    manage its KV (None: as vLLM does by itself); an engine that was made already takes neither. ``store`` is
    ``"memory"``, ``"sqlite:PATH"`` or a store. ``cache_salt`` separates tenants that share an engine: KV is
    reused only under an equal salt. ``memo_file`` keeps what read-only tools gave, for guesses, from one runtime to the
    next, readable by its owner alone; it takes ``KVConfig(predict_results="agent")``. Used as an async context manager.

    Raises ``SetupError`` and its kind when the engine or the store cannot be opened.
    """

    def __init__(
        self,
        engine: str | Engine = "vllm",
        *,
        store: str | Store = "memory",
        kv: KVConfig | None = None,
        limits: Limits | None = None,
        cache_salt: str | None = None,
        options: Mapping[str, Any] | None = None,
        engine_kv: EngineKV | None = MANAGED,
        memo_file: str | PathLike[str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        _check_runtime(kv, limits, engine_kv, cache_salt, options, memo_file, progress)
        self._spec, self._options, self._progress = engine, dict(options or {}), progress
        # An engine that was made by the caller manages its KV as it was told to when it was made.
        self._engine_kv = None if engine_kv is MANAGED and not isinstance(engine, str) else engine_kv
        self._store = open_store(store)
        self._kv = kv or KVConfig()
        self._limits = limits or Limits()
        if memo_file is not None and self._kv.predict_results != "agent":
            raise SetupError(f"memo_file={str(memo_file)!r} is for KVConfig(predict_results='agent'); set that too")
        self._memo_file = memo_file
        self._salt = cache_salt
        self._programs: dict[Hashable, Program] = {}
        self._stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise SetupError("the runtime is open already; share it, or make another akv.Runtime(...)")
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(opened(self._store))
            memos = stack.enter_context(kept_memos(self._memo_file, self._kv.memo_bytes))
            engine = open_engine(self._spec, options=self._options, kv=self._engine_kv, progress=self._progress)
            self.engine = engine if engine.started else await stack.enter_async_context(engine)
            self._format = await anyio.to_thread.run_sync(_load_format, self.engine.info.model_path)
            self._services = share(self.engine, store, self._kv, memos)
            await self._services.records.begin()
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._services.heartbeat.run, name="heartbeat")
            tasks.start_soon(self._services.anchors.run, name="anchors")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            self._services.closed.set()
            # What the body raised is the caller's own: passed to the stack's task group, it would come out wrapped.
            async with stack:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    living = tuple(self._services.live)
                    for each in living:
                        if isinstance(each, Run):
                            each.cancel()
                    for each in living:
                        await each.stop()

    @property
    def format(self) -> ChatFormat:
        """The model's tokenizer, chat template and call dialect."""
        return self._format

    async def kv_records(self, run_id: str | None = None) -> list[Record]:
        """What happened to KV in the engine since the runtime was opened, oldest first; none where it manages none.

        With ``run_id``, what concerns the run: its KV, and KV of others that gave way to its requests. The engine
        keeps its latest 4,096 records; ``Record.number`` shows what is missing. Raises ``EngineError``.
        """
        self._require_open()
        return await self._services.records.read(run_id)

    @overload
    async def run(
        self, target: Runnable[None, Output], prompt: str, **options: Unpack[RunOptions]
    ) -> Result[Output]: ...
    @overload
    async def run(
        self, target: Runnable[Deps, Output], prompt: str, *, deps: Deps, **options: Unpack[RunOptions]
    ) -> Result[Output]: ...
    async def run(
        self, target: Runnable[Any, Any], prompt: str, *, deps: Any = None, **options: Unpack[RunOptions]
    ) -> Result[Any]:
        """Run to the end and return the answer.

        ``deps`` reaches tools through their context and is never stored; ``RunOptions`` replace what the
        runtime has, for this run. Raises ``SetupError`` and its kind before the run begins, and what ends
        it if that is not an answer: ``RunError`` and its kind.
        """
        async with self._run(target, prompt, deps, options, watched=False) as run:
            return await run.result()

    @overload
    def start(self, target: Runnable[None, Output], prompt: str, **options: Unpack[RunOptions]) -> Run[Output]: ...
    @overload
    def start(
        self, target: Runnable[Deps, Output], prompt: str, *, deps: Deps, **options: Unpack[RunOptions]
    ) -> Run[Output]: ...
    def start(
        self, target: Runnable[Any, Any], prompt: str, *, deps: Any = None, **options: Unpack[RunOptions]
    ) -> Run[Any]:
        """A run to enter with ``async with``: iterate its events, await its ``result()``, ``cancel()`` it.

        Leaving the context cancels a run that has not ended. Raises ``SetupError`` and its kind.
        """
        return self._run(target, prompt, deps, options, watched=True)

    def chain(self, agent: Agent[Any, Any], *, kv: KVConfig | None = None, cache_salt: str | None = None) -> AgentChain:
        """A chain of ``agent`` to append to, generate from, prefill and fork by hand; ``release()`` it in the end.

        Its tools are offered to the model and not run: their calls are yours. ``kv`` and ``cache_salt`` replace what
        the runtime has. Raises ``SetupError`` and its kind.
        """
        self._require_open()
        _check_kind("chain", kv=kv)
        _check_salt("chain", cache_salt)
        services = evolve(self._services, kv=kv or self._kv)
        salt = self._salt if cache_salt is None else cache_salt
        return open_chain(services, self._program(agent, self._limits), secrets.token_hex(8), salt)

    def _run(
        self, target: Runnable[Any, Any], prompt: str, deps: Any, options: RunOptions, *, watched: bool
    ) -> Run[Any]:
        _check_run(prompt, options)
        self._require_open()
        program = self._program(target, options.get("limits", self._limits))
        _check_deps(program.graph, deps)
        order = Order(
            run_id=secrets.token_hex(8),
            prompt=clean_text(prompt),
            deps=deps,
            # A tenant that is None may be one that nobody looked up: it must not leave the runtime's.
            salt=self._salt if options.get("cache_salt") is None else options["cache_salt"],
            working_set=options.get("working_set"),
        )
        kv = options.get("kv", self._kv)
        if kv.predict_results == "agent" and kv.memo_bytes != self._kv.memo_bytes:
            raise SetupError(
                f"run option kv has memo_bytes={kv.memo_bytes}, but with predict_results='agent' all runs share the "
                f"runtime's memos, of memo_bytes={self._kv.memo_bytes}: give the run that, or make another runtime"
            )
        services = evolve(self._services, kv=kv)
        return Run(services, program, order, watched=watched)

    def _require_open(self) -> None:
        if self._stack is None:
            raise EngineUnavailable("the runtime is not open; use it as: async with akv.Runtime(...) as rt")

    def _program(self, target: Runnable[Any, Any], limits: Limits) -> Program:
        graph = compiled(target)
        # The digest covers how the nodes are wired, the nodes themselves which functions are in them.
        key = (graph.digest, tuple(graph.nodes.values()), limits)
        if key not in self._programs:
            if len(self._programs) >= PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = make_program(graph, self._format, self.engine.info.max_model_len, limits)
        return self._programs[key]


def _load_format(model_path: str) -> ChatFormat:
    chat = ChatFormat.load(model_path)
    # Probing the template renders many conversations: now, not inside the first run's first resume.
    _ = chat.verdict
    return chat


def compiled(target: Runnable[Any, Any]) -> CompiledGraph[Any, Any]:
    """What ``target`` runs as. Raises ``GraphError`` if a graph does not compile, ``SetupError`` for anything else."""
    if isinstance(target, Agent):
        return _standard(target)
    if isinstance(target, Graph):
        return compile(target)
    raise SetupError(f"cannot run {type(target).__name__}; give an akv.Agent or an akv.Graph")


@lru_cache(PROGRAMS_KEPT)
def _standard(agent: Agent[Any, Any]) -> CompiledGraph[Any, Any]:
    return standard_graph(agent)


def _check_runtime(
    kv: object, limits: object, engine_kv: object, salt: object, options: object, memo_file: object, progress: object
) -> None:
    _check_kind("Runtime", kv=kv, limits=limits, engine_kv=engine_kv)
    _check_salt("Runtime", salt)
    if not isinstance(options, Mapping | None) or not all(isinstance(name, str) for name in options or ()):
        raise SetupError(f"Runtime(options={options!r}) must be a mapping of the engine's start options, or None")
    if not isinstance(memo_file, str | PathLike | None):
        raise SetupError(f"Runtime(memo_file={memo_file!r}) must be the path of a file, or None")
    if progress is not None and not callable(progress):
        raise SetupError(f"Runtime(progress={progress!r}) must be a function of a text, or None")


def _check_kind(where: str, **options: object) -> None:
    for name, value in options.items():
        kind = {"kv": KVConfig, "limits": Limits, "engine_kv": EngineKV}[name]
        if not isinstance(value, kind | None):
            raise SetupError(f"{where}({name}={value!r}) must be akv.{kind.__name__}(...), or None")


def _check_salt(where: str, salt: object) -> None:
    """Salts are secrets of tenants: no message shows one."""
    if salt is None:
        return
    if not isinstance(salt, str):
        raise SetupError(f"{where}: cache_salt is of type {type(salt).__name__}; give it as text, or None")
    if not salt or salt != clean_text(salt):
        raise SetupError(f"{where}: cache_salt is empty, or no text that can be encoded; leave it out to share KV")


def _check_run(prompt: object, options: RunOptions) -> None:
    if not isinstance(prompt, str):
        raise SetupError(f"prompt must be text, not {type(prompt).__name__}")
    if unknown := sorted(options.keys() - RunOptions.__annotations__.keys()):
        raise SetupError(f"unknown run option {unknown[0]!r}; there are {', '.join(RunOptions.__annotations__)}")
    _check_salt("run", options.get("cache_salt"))
    for name, kind in (("limits", Limits), ("kv", KVConfig), ("working_set", int)):
        if name in options and not isinstance(value := options.get(name), kind):
            raise SetupError(f"run option {name}={value!r} is of the wrong type; leave it out for the runtime's own")
    if options.get("working_set", 1) < 1:
        raise SetupError(f"working_set={options['working_set']!r} must be at least 1 token")


def _check_deps(graph: CompiledGraph[Any, Any], deps: object) -> None:
    try:
        fits = isinstance(deps, graph.deps)
    except TypeError:  # a typing construct that cannot be checked at run time
        return
    if not fits:
        raise SetupError(
            f"graph {graph.name!r} is declared with deps={getattr(graph.deps, '__name__', graph.deps)}, "
            f"but deps of type {type(deps).__name__} were given; pass deps=... of that type"
        )
