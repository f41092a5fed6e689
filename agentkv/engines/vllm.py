"""vLLM inside this process: token ids in and out of ``AsyncLLM``, its scheduler and cache left as they are."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Self
from uuid import uuid4

import anyio
from attrs import evolve

from agentkv.engines.base import Delta, EngineInfo, FinishReason, GenerateRequest, PrefillRequest, Receipt, Usage
from agentkv.engines.clock import RealClock
from agentkv.engines.vllm_account import VLLMAccount
from agentkv.engines.vllm_info import engine_info
from agentkv.engines.vllm_kv import call, extra_args, grant_of, managed_capabilities, managed_options
from agentkv.engines.vllm_start import StartedLLM, one_line, start_llm, stop_llm
from agentkv.engines.vllm_tier import tier_line
from agentkv.errors import EngineError, EngineUnavailable
from agentkv.kv import PolicySettings

__all__ = ("VLLMEngine",)

ABORT_SECONDS = 5.0
FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class VLLMEngine:
    """vLLM 0.26 to 0.32 in process; start it with ``async with VLLMEngine(...) as engine``.

    ``model`` is a model folder or a hub name; None is the demo model. ``options`` are vLLM's own engine
    arguments (``AsyncEngineArgs``) and win over the defaults here. ``kv`` puts leases, one eviction order and
    admission into its scheduler; None leaves vLLM's own alone. ``forcing`` puts in the means to have a request say
    given ids, in either case. ``progress`` gets lines while it starts. Raises ``NotSupported`` for ``options`` that
    contradict ``kv`` or ``forcing``.
    A request ends at its stop ids and also at the model's own end-of-sequence ids.

    Close an iterator of ``generate`` that is left early (``contextlib.aclosing``): a bare ``break`` closes
    it only when the interpreter collects it.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        options: Mapping[str, Any] = MappingProxyType({}),
        kv: PolicySettings | None = None,
        forcing: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._model = model
        self._kv = kv
        self._forcing = forcing
        self._options = managed_options(options, kv, forcing=forcing)
        self._progress = progress
        self._clock = RealClock()
        self._account = VLLMAccount()
        self._started: StartedLLM | None = None
        self._info: EngineInfo | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Start the engine. Raises ``EngineStartError`` or ``NotSupported``."""
        if self._closed or self._started is not None:
            raise EngineUnavailable("this vLLM engine was started before: make a new one for another start")
        self._started = await start_llm(self._model, self._options, self._progress or _silent)
        try:
            # The first utility call starts vLLM's output task on this loop and proves that the engine answers.
            await self._started.llm.get_supported_tasks()
            managed = await managed_capabilities(self._started.llm, self._kv)
            self._info = engine_info(self._started, uuid4().hex, {**managed, "forcing": _forcing(self._forcing)})
            if self._kv is not None and "leases" in managed and managed["leases"].startswith("off"):
                # vLLM's own warnings are not shown: this one is about what the caller asked for.
                (self._progress or _silent)(f"KV is not managed, leases {managed['leases']}")
            if managed.get("tier") == "on":
                (self._progress or _silent)(tier_line(await call(self._started.llm, "info", {})))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def info(self) -> EngineInfo:
        """Raises ``EngineUnavailable`` before the start."""
        if self._info is None:
            raise EngineUnavailable("the vLLM engine is not started: enter it with `async with`")
        return self._info

    @property
    def started(self) -> bool:
        return self._started is not None

    @property
    def clock(self) -> RealClock:
        return self._clock

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Stream one generation; see ``Engine.generate``. Raises ``EngineError``, ``EngineUnavailable``."""
        generated = 0
        self._check_forced(request)
        async with aclosing(self._outputs(request, _sampling(request))) as outputs:
            async for output in outputs:
                ids = tuple(output.outputs[0].token_ids)
                generated += len(ids)
                finish = FINISHES[output.outputs[0].finish_reason] if output.finished else None
                if finish is None:
                    yield Delta(token_ids=ids, at=self._clock.now())
                    continue
                usage = _usage(len(request.token_ids), output, generated)
                yield Delta(token_ids=ids, at=self._clock.now(), finish=finish, usage=usage, grant=grant_of(output))

    async def prefill(self, request: PrefillRequest) -> Receipt:
        """Compute the KV of ``request.token_ids``; see ``Engine.prefill``.

        vLLM generates at least one token: it is the last prefill step's own and costs no further step.
        Raises ``EngineError``, ``EngineUnavailable``.
        """
        sent_at, cached, grant = self._clock.now(), 0, None
        async with aclosing(self._outputs(request, _sampling(request))) as outputs:
            async for output in outputs:
                cached, grant = output.num_cached_tokens or 0, grant_of(output)
        prompt, done_at = len(request.token_ids), self._clock.now()
        return Receipt(prompt=prompt, cached=cached, sent_at=sent_at, done_at=done_at, grant=grant)

    async def kv(self, operation: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Engine.kv``. Raises ``EngineUnavailable``."""
        if self._kv is None:
            return {"error": self.info.capabilities["leases"]}
        return await call(self._llm(), operation, payload)

    async def stats(self) -> dict[str, Any]:
        """See ``Engine.stats`` and ``VLLMAccount.report``. Raises ``EngineUnavailable``."""
        self._llm()
        return self._account.report()

    async def aclose(self) -> None:
        """Stop vLLM's processes. Requests still running raise ``EngineUnavailable``."""
        started, self._started, self._closed = self._started, None, True
        if started is None:
            return
        with anyio.CancelScope(shield=True):
            if not started.llm.errored:
                await started.llm.abort(self._account.live())
            await stop_llm(started.llm)

    def _llm(self) -> Any:
        if self._started is None:
            state = "closed" if self._closed else "not started: enter it with `async with`"
            raise EngineUnavailable(f"the vLLM engine is {state}")
        return self._started.llm

    def _check_forced(self, request: GenerateRequest) -> None:
        """Raises ``EngineError`` where the engine could not say the ids: it would say others."""
        if request.forced is None:
            return
        if not self._forcing:
            raise EngineError(f"{_name(request)}: forced ids need an engine that was started with forcing=True")
        vocabulary = self._llm().vllm_config.model_config.get_vocab_size()
        if request.forced and not 0 <= min(request.forced) <= max(request.forced) < vocabulary:
            raise EngineError(f"{_name(request)}: forced ids must be 0 to {vocabulary - 1}, the model's vocabulary")

    async def _outputs(self, request: GenerateRequest | PrefillRequest, params: Any) -> AsyncGenerator[Any, None]:
        """Outputs of one request, as vLLM gives them. Left early, it has sent the abort when it returns."""
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self._llm()
        prompt = tokens_input(request.token_ids, cache_salt=request.cache_salt)
        ended = False
        with self._account.request(request.request_id, len(request.token_ids)) as entry:
            stream = llm.generate(prompt, params, request.request_id)
            try:
                async for output in stream:
                    ended = output.finished
                    if ended and output.outputs[0].finish_reason not in FINISHES:
                        raise self._ended_badly(request, output.outputs[0].finish_reason)
                    entry.answered(output.num_cached_tokens or 0)
                    yield output
            except EngineDeadError as error:
                raise EngineUnavailable(f"{_name(request)}: vLLM's engine process has died") from error
            except (EngineError, GeneratorExit):
                raise
            except Exception as error:
                raise EngineError(f"{_name(request)}: {one_line(error.__cause__ or error)}") from error
            finally:
                if not ended and not self._closed:
                    # What is sent next must find the abort before it, however the caller was interrupted.
                    with anyio.move_on_after(ABORT_SECONDS, shield=True):
                        await stream.aclose()
                        await llm.abort(request.request_id)

    def _ended_badly(self, request: GenerateRequest | PrefillRequest, reason: str) -> EngineError:
        if self._closed:
            return EngineUnavailable(f"{_name(request)}: the vLLM engine was closed")
        return EngineError(f"{_name(request)}: vLLM ended the request ({reason})")


def _forcing(on: bool) -> str:
    return "on" if on else "off: the engine was started without it (forcing=False)"


def _silent(line: str) -> None:
    """Where the caller does not want to hear."""


def _name(request: GenerateRequest | PrefillRequest) -> str:
    return f"request {request.request_id!r}" + (f" ({request.tag})" if request.tag else "")


def _usage(prompt: int, output: Any, generated: int) -> Usage:
    usage = Usage(prompt=prompt, cached=output.num_cached_tokens or 0, generated=generated)
    if (times := output.metrics) is None:  # disable_log_stats=True
        return usage
    return evolve(
        usage, queue_s=times.scheduled_ts - times.queued_ts, prefill_s=times.first_token_ts - times.scheduled_ts
    )


def _sampling(request: GenerateRequest | PrefillRequest) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    common = {"detokenize": False, "output_kind": RequestOutputKind.DELTA, "extra_args": extra_args(request)}
    if isinstance(request, PrefillRequest):
        return SamplingParams(max_tokens=1, temperature=0.0, **common)
    constraint = request.constraint
    return SamplingParams(
        max_tokens=request.max_tokens,
        # Forced ids may hold what ends a turn; vLLM would strike it from the choice before min_tokens.
        min_tokens=0 if request.forced else request.min_tokens,
        ignore_eos=bool(request.forced),
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        seed=request.sampling.seed,
        stop_token_ids=list(request.stop_token_ids),
        skip_reading_prefix_cache=not request.reuse,
        structured_outputs=None if constraint is None else StructuredOutputsParams(structural_tag=constraint),
        **common,
    )
