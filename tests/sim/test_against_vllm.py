"""The simulated scheduler and vLLM's own, fed the same requests: same steps, same blocks, same queue of free ones.

And both with KV managed: the simulated one against the plugin in vLLM, which then also keep the same leases.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict

from agentkv.engines.sim_cache import BlockPool
from agentkv.engines.sim_holder import PoolHolder
from agentkv.engines.sim_managed import ManagedScheduler
from agentkv.engines.sim_request import SimRequest
from agentkv.engines.sim_scheduler import Scheduler, Step
from agentkv.kv import Directive, KVPolicy, PolicySettings, perform

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

    def __init__(self, config_folder: Path, rng: random.Random, *, ahead: bool = False) -> None:
        self.rng = rng
        blocks = rng.randint(10, 60)
        self.max_model_len = min(blocks * BLOCK, 400)
        seqs = rng.choice([1, 3, 8, 32])
        budget = max(seqs, rng.choice([32, 64, 200, 1024]))
        self.real = _vllm_scheduler(config_folder, blocks, budget, seqs, self.max_model_len, ahead=ahead)
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
        told = self.directive()
        self.real.add_request(_vllm_request(name, prompt, len(output), salt, reuse, self.hash_blocks, told))
        self.ours.add(
            SimRequest(name, prompt, output, "length", block_size=BLOCK, salt=salt, reuse=reuse, directive=told)
        )

    def directive(self) -> Directive | None:
        return None

    def abort_one(self) -> None:
        from vllm.v1.request import RequestStatus

        if names := self.abortable():
            name = self.rng.choice(names)
            self.real.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            assert self.ours.abort(name)

    def abortable(self) -> list[str]:
        return list(self.real.requests)

    def plan(self) -> tuple[Any, Step]:
        return self.real.schedule(), self.ours.schedule()

    def schedule(self) -> tuple[Any, Step]:
        real, ours = self.plan()
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
        assert [block.block_id - 1 for block in free] == _free_order(self.ours.pool)
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


class AheadPair(Pair):
    """vLLM's asynchronous scheduler, and ours with a step planned while the one before it runs."""

    def __init__(self, config_folder: Path, rng: random.Random) -> None:
        super().__init__(config_folder, rng, ahead=True)
        self.sampled: dict[int, list[str]] = {}

    def schedule(self) -> tuple[Any, Step]:
        real, ours = super().schedule()
        # Who gets a token is settled when the step is planned: by its end, counts have moved on.
        chunks = {name for name in real.num_scheduled_tokens if self.real.requests[name].is_prefill_chunk}
        self.sampled[id(real)] = [name for name in real.num_scheduled_tokens if name not in chunks]
        assert set(self.sampled[id(real)]) == {request.request_id for request in ours.sampled}
        self.planned = id(real)
        return real, ours

    def complete(self, real: Any, ours: Step) -> None:
        self.planned = id(real)
        super().complete(real, ours)

    def _sample(self, name: str) -> list[int]:
        request = self.real.requests.get(name)
        if request is None or name not in self.sampled[self.planned]:
            return []
        return [self.outputs[name][request.num_output_tokens]]


def test_steps_planned_ahead_are_those_of_vllm(config_folder: Path) -> None:
    preemptions = aborts = 0
    for seed in range(60):
        rng = random.Random(seed)
        pair = AheadPair(config_folder, rng)
        pair.add()
        running = pair.schedule()
        for _ in range(rng.randint(30, 150)):
            for _ in range(rng.choice([0, 0, 1, 2, 4])):
                pair.add()
            ahead = pair.schedule()
            if rng.random() < 0.1:
                pair.abort_one()
                aborts += 1
            pair.complete(*running)
            running = ahead
        preemptions += pair.ours.preemptions
    assert min(preemptions, aborts) > 10, "the runs never came to what is to be compared"


class ManagedPair(Pair):
    """The plugin in vLLM and the managed simulator. Tokens of leases and tickets differ; what they do must not."""

    def __init__(self, config_folder: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        from agentkv.plugin.manager import KVManager

        super().__init__(config_folder, rng)
        pool, limits = self.ours.pool, (self.ours._max_num_batched_tokens, self.ours._max_num_seqs)
        settings = PolicySettings(
            kv_pool_ratio=rng.choice([0.5, 0.85, 1.0]),
            prefetch_step=rng.choice([8, 32]),
            max_overtakes=rng.choice([1, 64]),
        )
        self.time, self.learnt = 100.0, 0
        monkeypatch.setattr(KVManager, "now", lambda _: self.time)
        monkeypatch.setattr("agentkv.plugin.manager.SETTLE_SECONDS", 0.0)
        self.real = _vllm_scheduler(config_folder, pool.size, *limits, self.max_model_len, settings)
        tokens, others = ((f"token{number}" for number in count()) for _ in range(2))
        policy = KVPolicy(
            settings,
            holder=PoolHolder(pool),
            pool_blocks=pool.size,
            block_size=BLOCK,
            engine_id="engine",
            mint=lambda: next(tokens),
            retry_seconds=0.0,
        )
        batched, seqs = limits
        self.ours: ManagedScheduler = ManagedScheduler(
            pool, policy, lambda: self.time, block_size=BLOCK, max_num_batched_tokens=batched, max_num_seqs=seqs
        )
        real = self.real.kv.policy
        real._mint = real.leases._mint = lambda: next(others)
        real.leases.planner._retry_seconds = 0.0
        self.policies = (real, policy)
        self.tickets: list[str] = []

    def directive(self) -> Directive | None:
        rng = self.rng
        if rng.random() < 0.2:
            return None
        kind = rng.choice(["generate", "generate", "prefill"])
        leases = [lease.token for lease in self.policies[1].leases.table]
        return Directive(
            kind=kind,
            run=f"run{rng.randint(0, 3)}",
            lease_class=rng.choice(["anchor", "chain", "branch", "speculative"]),
            resume=rng.random() < 0.4,
            expected_reuse=rng.choice([None, 1.0, 5.0]),
            ttl=rng.choice([0.0, 3.0, 30.0]),
            lease=rng.choice([None, *leases]),
            ticket=rng.choice([None, *self.tickets[-3:]]),
        )

    def operate(self) -> None:
        rng, tokens = self.rng, [lease.token for lease in self.policies[1].leases.table]
        operation, payload = rng.choice(
            [
                ("admit", self._declaration(rng)),
                ("leave", {"tickets": [rng.choice(self.tickets)] if self.tickets else []}),
                ("release", {"tokens": [rng.choice(tokens)] if tokens else []}),
                ("update", {"ticket": rng.choice(self.tickets or [""]), "blocks": rng.randint(1, self.ours.pool.size)}),
            ]
        )
        answers = [perform(policy, operation, payload, self.time) for policy in self.policies]
        assert answers[0] == answers[1]
        if "ticket" in answers[0]:
            self.tickets.append(answers[0]["ticket"])
        self.real.release_admitted()
        self.ours.release_admitted()

    def _declaration(self, rng: random.Random) -> dict[str, Any]:
        blocks = rng.randint(1, self.ours.pool.size)
        held = {"held": blocks // 3} if len(self.tickets) % 2 else {}
        return {"run": "r", "blocks": blocks, "ttl": rng.choice([3.0, 30.0]), **held}

    def schedule(self) -> tuple[Any, Step]:
        self.time += self.rng.random()
        for policy in self.policies:
            policy.settle(self.time)  # the plugin does not while it has neither leases nor directives
        if self.rng.random() < 0.4:
            self.operate()
        return super().schedule()

    def abortable(self) -> list[str]:
        # The plugin ends hopeless prefetches before its next step; the simulator has done so.
        return [name for name in self.real.requests if name not in self.real.kv.requests.doomed]

    def plan(self) -> tuple[Any, Step]:
        real = self.real.schedule()
        # The plugin ends hopeless prefetches before the next step, the simulator at once and tries again.
        while not real.num_scheduled_tokens and self.real.kv.requests.doomed:
            real = self.real.schedule()
        return real, self.ours.schedule()

    def complete(self, real: Any, ours: Step) -> None:
        # A step takes time, from which both learn what steps cost.
        self.time += 0.001 + 0.0001 * sum(tokens for _, tokens in ours.rows)
        super().complete(real, ours)
        self.learnt += self.ours._shares.cost.per_step(1) is not None
        seen = [
            [(lease.token, lease.run, len(lease.blocks)) for lease in policy.leases.table] for policy in self.policies
        ]
        assert seen[0] == seen[1]
        counts = [
            policy.records.counts - Counter(policy.records.counts["prefetch.drop"] * ["prefetch.drop"])
            for policy in self.policies
        ]
        assert counts[0] == counts[1]


# Draws that once differed: a request that builds on the blocks of a prefetch which ends for it; one that had been
# preempted, with one token left to recompute; a prefetch that is given up and aborted at once; dead blocks that were
# used again; a prefetch given up for its place in the batch, with which the last directive goes.
DIFFERED = (151, 247, 279, 288, 868)


def test_with_kv_managed_too(config_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[str] = Counter()
    learnt = 0
    for seed in (*range(60), *DIFFERED):
        rng = random.Random(seed)
        pair = ManagedPair(config_folder, rng, monkeypatch)
        for _ in range(rng.randint(30, 150)):
            for _ in range(rng.choice([0, 0, 1, 2])):
                pair.add()
            if rng.random() < 0.1:
                pair.abort_one()
            pair.complete(*pair.schedule())
        kinds.update(pair.policies[1].records.counts)
        learnt += pair.learnt
    assert learnt > 100, "the runs never came to parts of a step by what it costs"
    assert (
        min(kinds[kind] for kind in ("lease.evict:chain", "prefetch.drop", "admission.queue", "lease.expire:chain")) > 5
    )


def _free_order(pool: BlockPool) -> list[int]:
    """Free blocks in the order in which they are taken: empty ones, dead ones, the others."""
    empty = [block.id for block in pool._free.values() if block.key is None]
    return [*empty, *pool._dead, *list(pool._free)[len(empty) :]]


def _block_hasher() -> Callable[[Any], Any]:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(sha256)
    hasher: Callable[[Any], Any] = get_request_block_hasher(BLOCK, sha256)
    return hasher


def _vllm_request(
    name: str,
    prompt: list[int],
    output: int,
    salt: str | None,
    reuse: bool,
    hash_blocks: Callable[[Any], Any],
    directive: Directive | None = None,
) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    request = Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(
            max_tokens=output,
            ignore_eos=True,
            extra_args=None if directive is None else {"agentkv": directive.to_wire()},
        ),
        pooling_params=None,
        cache_salt=salt,
        block_hasher=hash_blocks,
    )
    request.skip_reading_prefix_cache = not reuse
    return request


def _vllm_scheduler(
    config_folder: Path,
    blocks: int,
    budget: int,
    seqs: int,
    max_model_len: int,
    settings: PolicySettings | None = None,
    *,
    ahead: bool = False,
) -> Any:
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
        additional_config={} if settings is None else {"agentkv": asdict(settings)},
    )
    if settings is not None:
        from agentkv.plugin.scheduler import SyncAgentScheduler as VLLMScheduler
    elif ahead:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VLLMScheduler
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32)
    return VLLMScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        block_size=BLOCK,
        structured_output_manager=StructuredOutputManager(config),
    )
