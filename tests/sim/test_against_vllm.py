"""The simulated scheduler and vLLM's own, fed the same requests: same steps, same blocks, same queue of free ones."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.engines.sim_cache import BlockPool
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step

pytestmark = pytest.mark.vllm

BLOCK = 16
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


@pytest.fixture(scope="module")
def config_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


class Pair:
    """Both schedulers, given the same; every difference is an assertion."""

    def __init__(self, config_folder: Path, rng: random.Random) -> None:
        self.rng = rng
        blocks = rng.randint(10, 60)
        self.max_model_len = min(blocks * BLOCK, 400)
        seqs = rng.choice([1, 3, 8, 32])
        budget = max(seqs, rng.choice([32, 64, 200, 1024]))
        self.real = _vllm_scheduler(config_folder, blocks, budget, seqs, self.max_model_len)
        self.ours = Scheduler(BlockPool(blocks), block_size=BLOCK, max_num_batched_tokens=budget, max_num_seqs=seqs)
        self.hash_blocks = _block_hasher()
        self.outputs: dict[str, list[int]] = {}
        self.history: list[list[int]] = []

    def add(self) -> None:
        rng = self.rng
        family = rng.randint(0, 3)
        prompt = [family * 100 + i % 97 for i in range(rng.randint(1, self.max_model_len - 60))]
        if self.history and rng.random() < 0.5:
            prompt = (rng.choice(self.history) + prompt)[: self.max_model_len - 60]
        output = [rng.randrange(1000) for _ in range(rng.randint(1, 40))]
        salt, reuse = rng.choice([None, None, "salt"]), rng.random() > 0.15
        name = f"r{len(self.outputs)}"
        self.outputs[name] = output
        self.history = [*self.history, prompt + output][-8:]
        self.real.add_request(_vllm_request(name, prompt, len(output), salt, reuse, self.hash_blocks))
        self.ours.add(SimRequest(name, prompt, output, "length", block_size=BLOCK, salt=salt, reuse=reuse))

    def abort_one(self) -> None:
        from vllm.v1.request import RequestStatus

        if self.real.requests:
            name = self.rng.choice(list(self.real.requests))
            self.real.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            assert self.ours.abort(name)

    def schedule(self) -> tuple[Any, Step]:
        real, ours = self.real.schedule(), self.ours.schedule()
        assert list(real.num_scheduled_tokens.items()) == [(r.request_id, tokens) for r, tokens in ours.rows]
        return real, ours

    def complete(self, real: Any, ours: Step) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(real.num_scheduled_tokens)
        sampled = [self._sample(name) for name in names]
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)}, sampled_token_ids=sampled
        )
        outputs = self.real.update_from_output(real, output)
        advanced = {o.request_id for client in outputs.values() for o in client.outputs if o.new_token_ids}
        assert advanced == {request.request_id for request in self.ours.complete(ours)}
        # vLLM keeps block 0 for itself, so its ids are ours plus one.
        free = self.real.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
        assert [block.block_id - 1 for block in free] == list(self.ours.pool._free)
        self.ours.check_integrity()

    def _sample(self, name: str) -> list[int]:
        request = self.real.requests.get(name)
        if request is None or request.num_computed_tokens < request.num_tokens:
            return []
        return [self.outputs[name][request.num_output_tokens]]


def test_steps_and_free_blocks_are_those_of_vllm(config_folder: Path) -> None:
    preemptions = evictions = hits = 0
    for seed in range(60):
        rng = random.Random(seed)
        pair = Pair(config_folder, rng)
        for _ in range(rng.randint(30, 150)):
            for _ in range(rng.choice([0, 0, 1, 2, 4])):
                pair.add()
            if rng.random() < 0.1:
                pair.abort_one()
            step = pair.schedule()
            if rng.random() < 0.1:
                pair.abort_one()
            pair.complete(*step)
        preemptions += pair.ours.preemptions
        evictions += pair.ours.pool.evictions
        hits += pair.ours.cached_tokens
    assert min(preemptions, evictions, hits) > 10, "the runs never came to what is to be compared"


def _block_hasher() -> Callable[[Any], Any]:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(sha256)
    hasher: Callable[[Any], Any] = get_request_block_hasher(BLOCK, sha256)
    return hasher


def _vllm_request(
    name: str, prompt: list[int], output: int, salt: str | None, reuse: bool, hash_blocks: Callable[[Any], Any]
) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    request = Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
        pooling_params=None,
        cache_salt=salt,
        block_hasher=hash_blocks,
    )
    request.skip_reading_prefix_cache = not reuse
    return request


def _vllm_scheduler(config_folder: Path, blocks: int, budget: int, seqs: int, max_model_len: int) -> Any:
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler as VLLMScheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
    cache.num_gpu_blocks = blocks + 1
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(config_folder), skip_tokenizer_init=True, dtype="float32", max_model_len=max_model_len
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            max_model_len=max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=cache,
        device_config=DeviceConfig(device="cpu"),
    )
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32)
    return VLLMScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        block_size=BLOCK,
        structured_output_manager=StructuredOutputManager(config),
    )
