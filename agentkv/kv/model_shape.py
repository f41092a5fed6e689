"""What of a model's ``config.json`` decides the size of its KV."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from agentkv.errors import NotSupported, SetupError
from agentkv.kv.layers import DTYPE_BYTES, LayerKind

__all__ = ("ModelShape",)

# Where models of several modalities keep the configuration of their language model.
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
# One layer in this many looks back on everything, in configurations that name no layer types.
PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
# Model types whose engines keep the latent vector; others with its fields keep keys and values built from it.
LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "pangu_ultra_moe")
# Fields of models that keep something other than keys and values of past tokens, or keep them by other rules.
UNCOUNTED = {
    "ssm_cfg": "state-space layers",
    "state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "attn_layer_period": "state-space layers between those with attention",
    "hybrid_override_pattern": "state-space layers between those with attention",
    "layers_block_type": "layers of unlike kinds",
    "block_types": "layers of unlike kinds",
    "attn_type_list": "layers of unlike kinds",
    "attention_hidden_size": "recurrent layers",
    "linear_num_value_heads": "layers with linear attention",
    "linear_attn_config": "layers with linear attention",
    "block_configs": "layers of unlike size",
    "global_head_dim": "sliding and full layers of unlike size",
    "swa_num_key_value_heads": "sliding and full layers of unlike size",
    "index_topk": "an index of its own beside the KV",
    "compress_ratios": "compressed KV",
    "attention_chunk_size": "layers that look back within chunks",
    "use_cla": "layers that share another's KV",
    "is_encoder_decoder": "an encoder's KV beside the decoder's",
}


@frozen(kw_only=True)
class ModelShape:
    """Layers that keep KV, by kind; the type of its values unless told otherwise; and what bounds a split."""

    model_type: str
    attention_heads: int
    layers: tuple[LayerKind, ...]
    kv_dtype: str

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Read a configuration in Hugging Face's form.

        Raises ``SetupError`` that names a field that is missing or no positive whole number, and ``NotSupported``
        with the field that says so for a model whose KV is not counted here.
        """
        text = next((config[name] for name in NESTED if isinstance(config.get(name), Mapping)), config)
        if text is not config and not _has(text, "num_hidden_layers"):
            return cls.read({**text, "dtype": text.get("dtype") or _dtype(config)})
        _refuse_uncounted(text)
        _require(text)
        return cls(
            model_type=str(text.get("model_type") or config.get("model_type") or "unknown"),
            attention_heads=_whole(text, "num_attention_heads"),
            layers=_layers(text),
            kv_dtype=_kv_dtype(config, text),
        )

    def check_split(self, tensor_parallel: int) -> None:
        """Raise ``SetupError`` if the model cannot be split over that many devices, by vLLM's rules."""
        if self.attention_heads % tensor_parallel:
            raise SetupError(
                f"tensor_parallel={tensor_parallel} does not divide the model's {self.attention_heads} attention "
                "heads; take one that does"
            )
        for kind in self.layers:
            kind.heads_on_device(tensor_parallel)


def _refuse_uncounted(text: Mapping[str, Any]) -> None:
    for name, what in UNCOUNTED.items():
        if text.get(name):
            model = text.get("model_type", "this model")
            raise NotSupported(
                f"{model!r} has {what} (its configuration has {name!r}); their KV is not counted here: start the "
                "engine, which logs its pool"
            )


def _require(text: Mapping[str, Any]) -> None:
    """Name everything that is missing at once, so that a configuration is mended in one go."""
    missing = [repr(name) for name in ("num_hidden_layers", "num_attention_heads") if not _has(text, name)]
    if not any(_has(text, name) for name in ("head_dim", "hidden_size", "kv_lora_rank")):
        missing.append("'head_dim' or 'hidden_size'")
    if missing:
        raise SetupError(f"the configuration lacks {', '.join(missing)}: is it a language model's config.json?")


def _layers(text: Mapping[str, Any]) -> tuple[LayerKind, ...]:
    # Layers that are not asked to keep KV of their own read that of an earlier one.
    own = _whole(text, "num_hidden_layers")
    if text.get("num_kv_shared_layers"):
        own -= _whole(text, "num_kv_shared_layers")
    if own < 1:
        raise SetupError("'num_kv_shared_layers' leaves no layer with KV of its own; check the configuration")
    heads, key, value = _sizes(text)
    windows = Counter(_windows(text, own))
    return tuple(
        LayerKind(layers=count, kv_heads=heads, head_size=key, value_size=value, window=window)
        for window, count in sorted(windows.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    )


def _sizes(text: Mapping[str, Any]) -> tuple[int, int, int]:
    """KV heads, values of a key, values of a value."""
    if text.get("kv_lora_rank") is not None:
        if text.get("model_type") not in LATENT:
            raise NotSupported(
                f"{text.get('model_type', 'this model')!r} has latent attention (field 'kv_lora_rank') of a kind that "
                f"is not counted here; counted are {', '.join(LATENT)}"
            )
        return 1, _whole(text, "kv_lora_rank") + _whole(text, "qk_rope_head_dim"), 0
    heads = _whole(text, "num_attention_heads")
    size = _whole(text, "head_dim") if text.get("head_dim") else _whole(text, "hidden_size") // heads
    if not size:
        raise SetupError(f"'hidden_size' is {text['hidden_size']}, less than the model's {heads} attention heads")
    return _kv_heads(text, heads), size, size


def _kv_heads(text: Mapping[str, Any], heads: int) -> int:
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    name = next((name for name in KV_HEADS if _has(text, name)), None)
    return _whole(text, name) if name is not None else heads


def _windows(text: Mapping[str, Any], layers: int) -> Sequence[int | None]:
    """The window of each layer with KV of its own, None for those that look back on everything."""
    types = text.get("layer_types")
    if isinstance(types, Sequence) and not isinstance(types, str):
        if len(types) < layers:
            raise SetupError(f"'layer_types' names {len(types)} layers of {layers}; check the configuration")
        return [_window_of(text, kind) for kind in types[:layers]]
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return [None] * layers
    window = _window_of(text, "sliding_attention")
    if text.get("use_sliding_window") and isinstance(text.get("max_window_layers"), int):
        return [window if place >= text["max_window_layers"] else None for place in range(layers)]
    pattern = text.get("sliding_window_pattern") or PATTERNS.get(str(text.get("model_type")))
    if pattern is None:
        return [window] * layers
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
        raise NotSupported(f"'sliding_window_pattern' is {pattern!r}; only one full layer in so many is counted here")
    return [window if (place + 1) % pattern else None for place in range(layers)]


def _window_of(text: Mapping[str, Any], kind: object) -> int | None:
    if kind == "full_attention":
        return None
    if kind == "sliding_attention":
        # Cohere's layers see the window and the token itself.
        return _whole(text, "sliding_window") + (text.get("model_type") == "cohere2")
    raise NotSupported(
        f"{text.get('model_type', 'this model')!r} has layers of type {kind!r} (field 'layer_types'); only full and "
        "sliding attention are counted here: start the engine, which logs its pool"
    )


def _kv_dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    quantized = config.get("quantization_config") or text.get("quantization_config") or {}
    nested = quantized.get("quantization") if isinstance(quantized, Mapping) else None
    inner = {**_mapping("quantization_config", quantized), **_mapping("quantization", nested or {})}
    scheme = inner.get("kv_cache_scheme") or inner.get("kv_cache_quant_algo")
    eight = isinstance(scheme, Mapping) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    if eight or str(scheme).lower() == "fp8":
        return "fp8"
    if scheme:
        raise NotSupported(f"the model asks for KV in {scheme!r}, whose size is not known here; give the type yourself")
    name = _dtype(text) or _dtype(config) or "bfloat16"
    if name not in DTYPE_BYTES:
        raise SetupError(f"'dtype' is {name!r}; known are {', '.join(map(repr, DTYPE_BYTES))}")
    # Engines serve models that are stored in 32 bits in 16.
    return "bfloat16" if name in ("float32", "float") else name


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SetupError(f"the configuration's {name!r} is {value!r}; it must be an object")
    return value


def _dtype(config: Mapping[str, Any]) -> str | None:
    name = config.get("dtype") or config.get("torch_dtype")
    return name.removeprefix("torch.") if isinstance(name, str) else None


def _has(text: Mapping[str, Any], name: str) -> bool:
    return text.get(name) is not None


def _whole(text: Mapping[str, Any], name: str) -> int:
    value = text.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        found = "is missing" if value is None else f"is {value!r}"
        raise SetupError(f"the configuration's {name!r} {found}; it must be a positive whole number")
    return value
