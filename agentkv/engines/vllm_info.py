"""What a started vLLM says about itself."""

from collections.abc import Mapping
from typing import Any

from agentkv.engines.base import EngineInfo
from agentkv.engines.vllm_start import StartedLLM
from agentkv.kv import DTYPE_BYTES, LayerKind, bytes_per_token

__all__ = ("engine_info",)


def engine_info(started: StartedLLM, engine_id: str, managed: Mapping[str, str]) -> EngineInfo:
    """Describe ``started``; sizes are those of the running engine. ``managed``: what of KV management is in force."""
    config = started.llm.vllm_config
    cache = config.cache_config
    return EngineInfo(
        name="vllm",
        engine_id=engine_id,
        model=started.model,
        model_path=started.model_path,
        block_size=cache.block_size,
        max_model_len=config.model_config.max_model_len,
        # vLLM keeps one block, the null block, for itself.
        pool_blocks=cache.num_gpu_blocks - 1,
        kv_bytes_per_token=_kv_bytes_per_token(config),
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        max_num_seqs=config.scheduler_config.max_num_seqs,
        version=started.version,
        capabilities={**_capabilities(config), **managed},
    )


def _kv_bytes_per_token(config: Any) -> int | None:
    """Bytes on one device while every layer keeps a token; None where the cache is not made of keys and values."""
    from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype

    model, parallel, cache_type = config.model_config, config.parallel_config, config.cache_config.cache_dtype
    if model.is_hybrid or model.is_attention_free or cache_type not in ("auto", *DTYPE_BYTES):
        return None
    size = model.get_head_size()
    kind = LayerKind(
        layers=model.get_num_layers(parallel),
        kv_heads=model.get_num_kv_heads(parallel),
        head_size=size,
        value_size=0 if model.use_mla else size,
    )
    return bytes_per_token([kind], dtype_bytes=kv_cache_dtype_str_to_dtype(cache_type, model).itemsize)


def _capabilities(config: Any) -> dict[str, str]:
    caching = config.cache_config.enable_prefix_caching
    return {
        "generate": "on",
        "prefill": "on" if caching else "off: nothing is kept without prefix caching",
        "prefix_caching": "on" if caching else "off: the option enable_prefix_caching=False was given",
        "cache_salt": "on",
        "no_reuse": "on",
        "structured_outputs": "on",
        "async_scheduling": "on" if config.scheduler_config.async_scheduling else "off: vLLM has turned it off",
    }
