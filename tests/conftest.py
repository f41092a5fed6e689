"""Real engines for tests: each configuration is started once, one at a time.

A test names its configuration by ``@pytest.mark.vllm("float32")`` and takes the fixture ``vllm_engine``;
``last=True`` puts it after all others of that configuration, for tests that end their engine. Without a
name the marker stands for tests that need what comes with vLLM, or as long, but no engine of this session.
"""

import inspect
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from agentkv.engines.demo_model import demo_model_path as make_demo_model
from agentkv.engines.vllm import VLLMEngine
from agentkv.kv import PolicySettings

# A law does not break because the machine is busy.
settings.register_profile("agentkv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentkv")

# float32: output does not depend on what else is in the batch; 128 usable blocks can be filled by a test.
# bfloat16: what a user gets who sets nothing.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    # Takes long recorded prompts, and has a way to spoil KV.
    "float32": {
        "dtype": "float32",
        "num_gpu_blocks_override": 129,
        "max_model_len": 4000,
        "worker_extension_cls": "kv_vandal.KVVandal",
    },
    # With leases, order of work and admission in its scheduler, and the means to force ids.
    "leases": {
        "dtype": "float32",
        "num_gpu_blocks_override": 129,
        "max_model_len": 2048,
        "kv": PolicySettings(kv_pool_ratio=0.9, prefetch_step=64),
        "forcing": True,
    },
    # As that, with a second tier of 60 blocks and a way to spoil it; checksums of all blocks are compared.
    "tier": {
        "dtype": "float32",
        "num_gpu_blocks_override": 129,
        "max_model_len": 2048,
        "kv": PolicySettings(kv_pool_ratio=0.9, cpu_tier_bytes=60 * 32 * 46_080, tier_verify=1.0),
        "worker_extension_cls": "tier_vandal.TierVandal",
    },
    # The same for a model with an even number of heads, half of them on each of two workers.
    "two_ranks": {
        "model": "even heads",
        "dtype": "float32",
        "num_gpu_blocks_override": 129,
        "max_model_len": 2048,
        "tensor_parallel_size": 2,
        "skip_tokenizer_init": True,
        "kv": PolicySettings(kv_pool_ratio=0.9, cpu_tier_bytes=60 * 32 * 6_144, tier_verify=1.0),
        "worker_extension_cls": "tier_vandal.TierVandal",
    },
    "bfloat16": {},
}
# torch compiles a few methods of its own with what it has deprecated, when vLLM first imports it.
WARNINGS_OF_VLLM = ("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",)
START_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One loop for the whole session: an engine's tasks live on the loop that it was started on.
    for item in items:
        if item.get_closest_marker("vllm") is not None:
            if inspect.iscoroutinefunction(getattr(item, "function", None)):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(START_SECONDS))
            for warning in WARNINGS_OF_VLLM:
                item.add_marker(pytest.mark.filterwarnings(warning))
    items.sort(key=_order)


def _order(item: pytest.Item) -> tuple[int, bool]:
    marker = item.get_closest_marker("vllm")
    if marker is None or not marker.args:
        return (-2 if marker is None else -1), False
    return list(CONFIGURATIONS).index(marker.args[0]), bool(marker.kwargs.get("last"))


def write_even_model(folder: Path) -> Path:
    """A model of 4 heads, 2 of them for keys and values, whose random weights let each token matter."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.1,
        dtype="float32",
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@contextmanager
def bound_to_cores(workers: int) -> Iterator[None]:
    """Give each of several workers a core: vLLM's CPU build would give each a memory node, and find too few."""
    if workers > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(workers)))
    try:
        yield
    finally:
        os.environ.pop("VLLM_CPU_OMP_THREADS_BIND", None)


class Engines:
    """The engine that is up now, if any."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._name = ""
        self._engine: VLLMEngine | None = None
        self._failed: dict[str, Exception] = {}
        self._let_the_engine_import_from_tests()

    @staticmethod
    def _let_the_engine_import_from_tests() -> None:
        folder = str(Path(__file__).parent / "vllm")
        known = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if folder not in known:
            # for an engine process that is forked, and for one that is spawned
            sys.path.append(folder)
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, *known])

    async def get(self, name: str) -> VLLMEngine:
        """The engine of configuration ``name``; another one is closed first."""
        if self._engine is not None and self._name == name:
            return self._engine
        if name in self._failed:
            raise self._failed[name]
        await self.close()
        options = dict(CONFIGURATIONS[name])
        kv, forcing = options.pop("kv", None), options.pop("forcing", False)
        model = self._model if options.pop("model", None) is None else write_even_model(self._folder)
        engine = VLLMEngine(str(model), kv=kv, forcing=forcing, options=options, progress=print)
        try:
            with bound_to_cores(options.get("tensor_parallel_size", 1)):
                await engine.__aenter__()
        except Exception as error:
            self._failed[name] = error
            raise
        self._name, self._engine = name, engine
        return engine

    async def close(self) -> None:
        """Close the engine that is up; the next test of its configuration gets a new one."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()


@pytest.fixture(scope="session")
def demo_model_path() -> Path:
    """The demo model's folder: configuration, weights, tokenizer and chat template."""
    return make_demo_model(print)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engines(demo_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engines]:
    """Whichever engine is up; closed at the session's end."""
    engines = Engines(demo_model_path, tmp_path_factory.mktemp("even_heads"))
    yield engines
    await engines.close()


@pytest_asyncio.fixture(loop_scope="session")
async def vllm_engine(request: pytest.FixtureRequest, engines: Engines) -> VLLMEngine:
    """The started engine of the configuration that the test's ``vllm`` marker names."""
    return await engines.get(request.node.get_closest_marker("vllm").args[0])
