"""vLLM's real scheduler classes without a model: steps are planned and answered as an engine core would."""

import json
import warnings
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentkv.kv import Directive

# Where vLLM is not installed there is nothing here to test.
HAS_VLLM = find_spec("vllm") is not None
collect_ignore_glob = [] if HAS_VLLM else ["test_*.py"]

if HAS_VLLM:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
        from vllm.v1.request import Request, RequestStatus
        from vllm.v1.structured_output import StructuredOutputManager

        from agentkv.plugin import utility
        from agentkv.plugin.forcing import FORCED_ARG, ForcingAgentScheduler, ForcingScheduler
        from agentkv.plugin.scheduler import AgentScheduler

BLOCK = 4
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}


class Core:
    """One scheduler and what an engine core does around it; steps may be ``depth`` ahead of their results."""

    def __init__(
        self,
        config: Path,
        *,
        stock: bool = False,
        forcing: bool = False,
        asynchronous: bool = True,
        blocks: int = 64,
        batched: int = 64,
        sequences: int = 16,
        longest: int = 512,
        policy: str = "fcfs",
        depth: int | None = None,
        settings: dict[str, Any] | None = None,
        tier_blocks: int = 0,
        beside: tuple[str, ...] = (),
        chunked: bool = True,
    ) -> None:
        init_none_hash(sha256)
        self.depth = depth if depth is not None else (2 if asynchronous else 1)
        if tier_blocks:
            # One layer of one head of 32 in float32, keys and values, blocks of 4.
            settings = {**(settings or {}), "cpu_tier_bytes": tier_blocks * 2 * 32 * 4 * BLOCK}
        vllm_config = _vllm_config(config, batched, sequences, longest, policy, asynchronous, settings or {})
        if tier_blocks:
            vllm_config.kv_transfer_config = _connectors(beside)
            vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = True
        vllm_config.cache_config.num_gpu_blocks = blocks
        vllm_config.scheduler_config.enable_chunked_prefill = chunked
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=32, dtype=torch.float32)
        bare = ForcingScheduler if forcing else AsyncScheduler if asynchronous else Scheduler
        cls = bare if stock else ForcingAgentScheduler if forcing else AgentScheduler
        self.scheduler: Any = cls(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
            ),
            block_size=BLOCK,
            log_stats=True,
            structured_output_manager=StructuredOutputManager(vllm_config),
        )
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.steps: deque[Any] = deque()
        self.masks: deque[dict[str, int]] = deque()
        self.outputs: dict[str, list[Any]] = {}
        self.reports: dict[str, Any] = {}
        self.cached: dict[str, int] = {}
        self.finished: set[str] = set()
        self.names = count()
        self.on_step: list[Callable[[Any], None]] = []
        # What the workers' connectors report with a step's results, if there are any.
        self.report: Callable[[], Any] = lambda: None

    def add(
        self,
        tokens: list[int],
        *,
        max_tokens: int = 1,
        name: str = "",
        arg: Any = None,
        forced: Any = None,
        resumable: bool = False,
        **fields: Any,
    ) -> str:
        """Send a request; ``fields`` are those of its directive, ``arg`` is sent in the directive's place.

        ``resumable``: more streaming input comes under its name.
        """
        name = name or f"q{next(self.names)}"
        if fields:
            arg = Directive(**{"run": "r", **fields}).to_wire()
        extra = {name: value for name, value in (("agentkv", arg), (FORCED_ARG, forced)) if value is not None}
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, extra_args=extra or None)
        params.update_from_generation_config({}, 999)
        request = Request(
            request_id=name,
            prompt_token_ids=list(tokens),
            sampling_params=params,
            pooling_params=None,
            block_hasher=self.hasher,
            resumable=resumable,
        )
        self.outputs.setdefault(name, [])
        self.scheduler.add_request(request)
        return name

    def plan(self) -> Any:
        step = self.scheduler.schedule()
        for new in step.scheduled_new_reqs:
            self.cached.setdefault(new.req_id, new.num_computed_tokens)
        for observer in self.on_step:
            observer(step)
        self.steps.append(step)
        self.masks.append(_allowed(self.scheduler.get_grammar_bitmask(step)))
        return step

    def answer(self) -> None:
        """Give the oldest planned step its tokens: the masked one, or one of request and position alone."""
        step, mask = self.steps.popleft(), self.masks.popleft()
        names = list(step.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests.get(name)
            done = request is None or self._is_last_chunk(request, step, name)
            sampled.append([mask.get(name, self.token(name, len(self.outputs[name])))] if done else [])
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        if (report := self.report()) is not None:
            result.kv_connector_output = KVConnectorOutput(kv_connector_worker_meta=report)
        for outputs in self.scheduler.update_from_output(step, result).values():
            for output in outputs.outputs:
                self.outputs[output.request_id].extend(output.new_token_ids)
                if output.finish_reason is not None:
                    self.finished.add(output.request_id)
                    self.reports[output.request_id] = (output.kv_transfer_params or {}).get("agentkv")

    @staticmethod
    def token(name: str, position: int) -> int:
        return (sum(map(ord, name)) * 31 + position * 17) % 900

    def _is_last_chunk(self, request: Any, step: Any, name: str) -> bool:
        start = next((n.num_computed_tokens for n in step.scheduled_new_reqs if n.req_id == name), None)
        if start is None:
            cached = step.scheduled_cached_reqs
            start = cached.num_computed_tokens[cached.req_ids.index(name)]
        return start + step.num_scheduled_tokens[name] >= request.num_prompt_tokens + len(self.outputs[name])

    def step(self) -> Any:
        while len(self.steps) >= self.depth:
            self.answer()
        return self.plan()

    def drain(self) -> None:
        while self.steps:
            self.answer()

    def run(self, limit: int = 500) -> None:
        """Step until nothing is left that a step could advance."""
        for _ in range(limit):
            if not (self.scheduler.has_requests() or self.steps):
                return
            if self.scheduler.has_requests():
                self.step()
            if not self.scheduler.has_unfinished_requests():
                self.drain()
        raise AssertionError("the scheduler did not come to rest")

    def one(self, tokens: list[int], **fields: Any) -> dict[str, Any]:
        """Run one request to its end; its report, with the tokens that were cached for it."""
        name = self.add(tokens, **fields)
        self.run()
        assert name in self.finished
        return {**(self.reports[name] or {}), "cached": self.cached.get(name)}

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def call(self, operation: str, **payload: Any) -> dict[str, Any]:
        return json.loads(utility.call(self.scheduler, operation, json.dumps(payload)))

    @property
    def free(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def _allowed(grammar: Any) -> dict[str, int]:
    """The one id that each masked request may say."""
    if grammar is None:
        return {}
    found = {}
    for name, row in zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=True):
        ids = [32 * at + bit for at, word in enumerate(row.tolist()) for bit in range(32) if word >> bit & 1]
        (found[name],) = ids
    return found


def _connectors(beside: tuple[str, ...]) -> "KVTransferConfig":
    """Ours alone, or in front of others of vLLM's."""
    ours = {
        "kv_connector": "TierConnector",
        "kv_connector_module_path": "agentkv.plugin.connector",
        "kv_role": "kv_both",
    }
    if not beside:
        return KVTransferConfig(**ours)
    all_of_them = [ours, *({"kv_connector": name, "kv_role": "kv_both"} for name in beside)]
    more = {"connectors": all_of_them}
    return KVTransferConfig(kv_connector="MultiConnector", kv_role="kv_both", kv_connector_extra_config=more)


def _vllm_config(
    config: Path, batched: int, sequences: int, longest: int, policy: str, asynchronous: bool, settings: dict[str, Any]
) -> "VllmConfig":
    model = ModelConfig(
        model=str(config), tokenizer=str(config), skip_tokenizer_init=True, dtype="float32", max_model_len=longest
    )
    scheduler = SchedulerConfig(
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        max_model_len=longest,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        policy=policy,
    )
    cache = CacheConfig(block_size=BLOCK, gpu_memory_utilization=0.5, enable_prefix_caching=True)
    built = VllmConfig(
        model_config=model,
        scheduler_config=scheduler,
        cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
        additional_config={"agentkv": settings} if settings else {},
    )
    # The CPU platform turns asynchronous scheduling off; the classes themselves do not mind where they run.
    built.scheduler_config.async_scheduling = asynchronous
    built.cache_config.block_size = BLOCK
    return built


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture
def make_core(tiny_model: Path) -> Callable[..., Core]:
    return lambda **options: Core(tiny_model, **options)
