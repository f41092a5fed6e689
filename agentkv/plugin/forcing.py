"""Generations whose ids are given beforehand: the model computes and the sampler samples, from one id at a time.

Chosen by ``scheduler_cls``: ``ForcingScheduler`` is vLLM's own scheduler and this, ``ForcingAgentScheduler`` the one
that manages KV and this, so that both pay the same for it. A request is forced if
``SamplingParams.extra_args["agentkv_forced"]`` is a list of token ids; send it with ``ignore_eos``, without
``min_tokens``, and with ``max_tokens`` equal to the list's length. Other requests are left alone.

The ids reach the sampler as masks of structured output do, from the scheduler with each step, which both model
runners and asynchronous scheduling know how to handle. A custom logits processor would not do: some versions fall back
to their older model runner for it.
"""

from collections.abc import Iterator
from typing import Any

import torch
import vllm
from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.core.sched.scheduler import Scheduler

from agentkv.errors import EngineStartError
from agentkv.plugin.scheduler import AgentScheduler, SyncAgentScheduler, is_synchronous
from agentkv.plugin.start_report import reporting

__all__ = (
    "FORCED_ARG",
    "Forcing",
    "ForcingAgentScheduler",
    "ForcingScheduler",
    "SyncForcingAgentScheduler",
    "SyncForcingScheduler",
)

logger = init_logger("agentkv.plugin")

FORCED_ARG = "agentkv_forced"
_WORD = 32


class Forcing:
    """Goes before a scheduler among the bases of a class. Keeps no state about requests, and raises at start only.

    Raises ``EngineStartError`` where vLLM has no masks to put this into, or decodes speculatively.
    """

    requests: dict[str, Any]
    vllm_config: Any

    @reporting()
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not hasattr(super(), "get_grammar_bitmask"):
            raise EngineStartError(f"vLLM {vllm.__version__} has no way to make a request say given ids")
        if self.vllm_config.speculative_config is not None:
            raise EngineStartError("given ids cannot be forced on drafts: leave speculative_config out")
        self._vocabulary = int(self.vllm_config.model_config.get_vocab_size())
        self._failed = False

    def get_grammar_bitmask(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """As vLLM's, with a row for each forced request that samples a token in this step."""
        base = super().get_grammar_bitmask(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        try:
            rows = dict(self._rows(scheduler_output, base))
            return _with_rows(base, rows, self._vocabulary) if rows else base
        except Exception:  # an exception in a scheduler's method ends the engine for all its clients
            if not self._failed:
                logger.exception("agentkv: forcing failed; the requests of this step say what they like")
            self._failed = True
            return base

    def _rows(self, scheduler_output: Any, base: Any) -> Iterator[tuple[str, int]]:
        """Requests with the id that each must say next."""
        taken = () if base is None else base.structured_output_request_ids
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None or request.is_prefill_chunk or name in taken:
                continue
            ids = _forced_ids(request)
            # Asynchronous scheduling has counted the token of this step as a placeholder already.
            position = request.num_output_tokens + max(request.num_output_placeholders, 1) - 1
            token = ids[position] if position < len(ids) else None
            if isinstance(token, int) and 0 <= token < self._vocabulary:
                yield name, token


def _forced_ids(request: Any) -> list[Any]:
    params = request.sampling_params
    found = None if params is None or params.extra_args is None else params.extra_args.get(FORCED_ARG)
    return found if isinstance(found, list) else []


def _with_rows(base: Any, rows: dict[str, int], vocabulary: int) -> Any:
    words = [token // _WORD for token in rows.values()]
    bits = [token % _WORD for token in rows.values()]
    # The highest bit is the sign of what vLLM keeps as 32-bit integers.
    values = [1 << bit if bit < _WORD - 1 else -(1 << bit) for bit in bits]
    mask = torch.zeros((len(rows), -(-vocabulary // _WORD)), dtype=torch.int32)
    mask[torch.arange(len(rows)), torch.tensor(words)] = torch.tensor(values, dtype=torch.int32)
    if base is None:
        return GrammarOutput([*rows], mask.numpy())
    base.grammar_bitmask = torch.cat((torch.from_numpy(base.grammar_bitmask), mask)).numpy()
    base.structured_output_request_ids = [*base.structured_output_request_ids, *rows]
    if getattr(base, "num_acceptable_drafts", None) is not None:
        base.num_acceptable_drafts = [*base.num_acceptable_drafts, *(0 for _ in rows)]
    return base


class SyncForcingScheduler(Forcing, Scheduler):
    """vLLM's synchronous scheduler, and forcing."""


class ForcingScheduler(Forcing, AsyncScheduler):
    """vLLM's asynchronous scheduler and forcing, or the synchronous one where the engine is synchronous."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The scheduler that fits the engine's configuration."""
        return SyncForcingScheduler(*args, **kwargs) if is_synchronous(args, kwargs) else super().__new__(cls)


class SyncForcingAgentScheduler(Forcing, SyncAgentScheduler):
    """The scheduler that manages KV, synchronous, and forcing."""


class ForcingAgentScheduler(Forcing, AgentScheduler):
    """The scheduler that manages KV, and forcing."""

    synchronous = SyncForcingAgentScheduler
