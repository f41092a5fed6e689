"""Engines for the benchmark: one alive at a time, started anew only where its options must differ."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from types import MappingProxyType
from typing import Any, Self

from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import Workload
from agentkv.config import EngineKV
from agentkv.engines import Engine, GenerateRequest, PrefillRequest, open_engine
from agentkv.errors import EngineStartError, SetupError

__all__ = ("EngineHost",)

FULL_WARM_UPS = 2
SHORT_WARM_UP_TOKENS = 256
FORCED_WARM_UP_TOKENS = 4


class EngineHost:
    """Hands out a started and warmed-up engine that manages its KV in a given way.

    A simulated engine is made anew each time, so that repetitions are equal to the last digit. A real one is
    kept while the same is asked for: another salt per repetition makes its former cache useless, and
    what nobody uses any more is the first to be evicted. Use it as an async context manager.
    """

    def __init__(
        self,
        spec: str,
        workload: Workload,
        *,
        block: int,
        pool: float | None,
        warm_up: int,
        options: Mapping[str, Any],
        progress: Callable[[str], None],
    ) -> None:
        self._spec, self._workload, self._block, self._warm_up = spec, workload, block, warm_up
        self._simulated = spec.partition(":")[0] == "sim"
        self._asked = options
        self._base = {**self._sizes(pool), **options}
        self._progress = progress
        self._stack = AsyncExitStack()
        self._engine: Engine | None = None
        self._kept: tuple[EngineKV | None, Mapping[str, Any]] = (None, {})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def options(self) -> Mapping[str, Any]:
        """What every engine is started with, whatever the mode."""
        return self._base

    async def get(self, kv: EngineKV | None, own: Mapping[str, Any] = MappingProxyType({})) -> Engine:
        """A started engine that manages its KV by ``kv`` (None: not), with the options ``own`` besides.

        Modes share an engine only where both are equal. Raises as the engine's start does.
        """
        wanted = (kv, dict(own))
        if self._engine is not None and self._kept == wanted and not self._simulated:
            return self._engine
        await self._stack.aclose()
        self._engine = None
        try:
            engine = open_engine(
                self._spec,
                options={**self._base, **own},
                kv=kv,
                forcing=self._workload.forces,
                script=_made_up if self._simulated else None,
                progress=self._progress,
            )
            await self._stack.enter_async_context(engine)
        except EngineStartError as error:
            raise self._explained(error) from error
        await self._warm(engine)
        self._engine, self._kept = engine, wanted
        return engine

    def _explained(self, error: EngineStartError) -> EngineStartError:
        """What of an engine's message nobody asked for that gave no options."""
        if "max_model_len" not in str(error) or "max_model_len" in self._asked:
            return error
        return EngineStartError(
            f"{error}. max_model_len follows from the workload, whose longest chain has {self._workload.longest:,} "
            "tokens: have shorter prompts, results or outputs, or fewer of them"
        )

    def _sizes(self, pool: float | None) -> dict[str, Any]:
        """Pool and maximum length. The pool is a share of what all agents hold at their ends."""
        longest = -(-(self._workload.longest + 1) // self._block)
        sizes: dict[str, Any] = {"block_size": self._block, "max_model_len": longest * self._block}
        if pool is None:
            return sizes
        blocks = round(self._workload.blocks(self._block) * pool)
        if blocks < longest:
            raise SetupError(
                f"pool={pool:g} of the working set is {blocks} blocks, but the longest chain alone needs {longest}; "
                f"give at least {longest / self._workload.blocks(self._block):.3f}"
            )
        # vLLM keeps one block, the null block, for itself.
        return {**sizes, **({"pool_blocks": blocks} if self._simulated else {"num_gpu_blocks_override": blocks + 1})}

    async def _warm(self, engine: Engine) -> None:
        short = min(SHORT_WARM_UP_TOKENS, self._workload.prompt_tokens)
        for number in range(self._warm_up):
            tokens = self._workload.prompt_tokens if number < FULL_WARM_UPS else short
            ids = random_ids(f"warm-up/{number}", tokens)
            await engine.prefill(PrefillRequest(request_id=f"warm-up/{number}", token_ids=list(ids)))
        if self._workload.forces and self._warm_up:
            await _force(engine)


async def _force(engine: Engine) -> None:
    """Have what an engine compiles for forced ids at their first use compiled now."""
    ids = random_ids("warm-up/forced", FORCED_WARM_UP_TOKENS)
    request = GenerateRequest(request_id="warm-up/forced", token_ids=[*ids], max_tokens=len(ids), forced=ids)
    async with aclosing(engine.generate(request)) as deltas:
        async for _ in deltas:
            pass


def _made_up(request: GenerateRequest) -> tuple[int, ...]:
    """What the simulated model says: ids that depend on the request's name alone."""
    return random_ids(request.request_id, request.max_tokens)
