"""What vLLM's own code makes of a configuration is what the arithmetic says; no engine is started."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.transformers_utils.config import get_config, get_hf_text_config
from vllm.transformers_utils.model_arch_config_convertor import (
    MODEL_ARCH_CONFIG_CONVERTORS,
    ModelArchConfigConvertorBase,
)
from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MLAAttentionSpec, SlidingWindowSpec

from agentkv.kv import DTYPE_BYTES, KVGroup, LayerKind, ModelShape, bytes_per_token, pool_of

TORCH = {"bfloat16": torch.bfloat16, "float32": torch.float32, "fp8": torch.uint8}
BLOCK, GIB = 16, 1 << 30


def llama(layers: int, heads: int, kv_heads: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "torch_dtype": "bfloat16",
        **more,
    }


GEMMA3 = llama(62, 32, 16, 5376, model_type="gemma3_text", head_dim=128, sliding_window=1024)
CONFIGS = {
    "Llama-3.1-8B": llama(32, 32, 8, 4096),
    "Llama-3.1-70B": llama(80, 64, 8, 8192),
    "SmolLM2-135M": llama(30, 9, 3, 576),
    "Qwen3-8B": llama(36, 32, 8, 4096, model_type="qwen3", head_dim=128),
    "Mistral-7B-v0.1": llama(32, 32, 8, 4096, model_type="mistral", sliding_window=4096),
    "DeepSeek-V3": llama(
        61,
        128,
        128,
        7168,
        model_type="deepseek_v3",
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    ),
    "Gemma-2-9B": llama(42, 16, 8, 3584, model_type="gemma2", head_dim=256, sliding_window=4096),
    "Gemma-3-27B": {
        "model_type": "gemma3",
        "text_config": GEMMA3,
        "vision_config": {"model_type": "siglip_vision_model"},
    },
}
SPLITS = [(name, 1) for name in CONFIGS] + [("Llama-3.1-70B", size) for size in (2, 4, 8, 16)]
SPLITS += [("SmolLM2-135M", 3), ("DeepSeek-V3", 8), ("Gemma-3-27B", 8), ("Gemma-3-27B", 32)]


def vllms_layers(folder: Path, config: dict[str, Any], split: int, dtype: torch.dtype) -> dict[str, KVCacheSpec]:
    """Each layer's specification, as vLLM's reading of the configuration gives it."""
    (folder / "config.json").write_text(json.dumps(config))
    whole = get_config(str(folder), trust_remote_code=False)
    text = get_hf_text_config(whole)
    reader = MODEL_ARCH_CONFIG_CONVERTORS.get(whole.model_type, ModelArchConfigConvertorBase)
    model = reader(whole, text).convert()
    owner = SimpleNamespace(use_mla=model.is_deepseek_mla, model_arch_config=model)
    heads = ModelConfig.get_num_kv_heads(owner, SimpleNamespace(tensor_parallel_size=split))
    common = {"block_size": BLOCK, "num_kv_heads": heads, "head_size": model.head_size, "dtype": dtype}
    types = getattr(text, "layer_types", None) or [None] * text.num_hidden_layers
    window = getattr(text, "sliding_window", None)
    return {
        f"layer.{place}": MLAAttentionSpec(**common)
        if model.is_deepseek_mla
        else SlidingWindowSpec(**common, sliding_window=window)
        if window and kind != "full_attention"
        else FullAttentionSpec(**common)
        for place, kind in enumerate(types)
    }


def our_layers(layers: tuple[LayerKind, ...]) -> int:
    return sum(kind.layers for kind in layers)


@pytest.mark.parametrize("hybrid", [True, False], ids=["hybrid", "unified"])
@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_pages_and_pools_are_vllms(tmp_path: Path, name: str, split: int, dtype: str, hybrid: bool) -> None:
    specs = vllms_layers(tmp_path, CONFIGS[name], split, TORCH[dtype])
    layers = ModelShape.read(CONFIGS[name]).layers
    size = DTYPE_BYTES[dtype]
    assert our_layers(layers) == len(specs)
    pages = sum(spec.page_size_bytes for spec in specs.values())
    assert bytes_per_token(layers, dtype_bytes=size, tensor_parallel=split) * BLOCK == pages

    vllm = VllmConfig(cache_config=CacheConfig(block_size=BLOCK), scheduler_config=SchedulerConfig.default_factory())
    # What a backend resolves when the engine starts; a pool's size is the same in all of vLLM's layer-outer ones.
    vllm.cache_config.kv_cache_layout = "LBNHC"
    vllm.scheduler_config.disable_hybrid_kv_cache_manager = not hybrid
    groups = get_kv_cache_groups(vllm, specs)
    theirs = get_kv_cache_config_from_groups(vllm, groups, GIB)
    ours = pool_of(layers, pool_bytes=GIB, block_size=BLOCK, dtype_bytes=size, tensor_parallel=split, hybrid=hybrid)
    assert ours.blocks == theirs.num_blocks - 1
    found = [group.kv_cache_spec for group in theirs.kv_cache_groups]
    windows = [spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None for spec in found]
    assert sorted(windows, key=str) == sorted((group.window for group in ours.groups), key=str)


def test_a_token_of_the_8b_model_takes_what_the_documentation_says() -> None:
    layers = ModelShape.read(CONFIGS["Llama-3.1-8B"]).layers
    assert bytes_per_token(layers, dtype_bytes=2) == 131_072


@pytest.mark.parametrize("tokens", [1, 24, 25, 33, 34, 35, 1000])
def test_a_window_drops_the_blocks_that_vllm_drops(tokens: int) -> None:
    owner = SimpleNamespace(sliding_window=25, extra_retained_tokens=0)
    skipped = SlidingWindowManager.get_num_skipped_tokens(owner, tokens) // 10
    group = KVGroup(layers=1, page_bytes=1, block_size=10, window=25)
    assert group.blocks(tokens) == -(-tokens // 10) - skipped
