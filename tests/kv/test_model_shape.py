"""Configurations of models, cut down to what decides the size of their KV."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.errors import NotSupported, SetupError
from agentkv.kv import LayerKind, ModelShape

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}


def kind(layers: int, kv_heads: int, size: int, window: int | None = None) -> LayerKind:
    return LayerKind(layers=layers, kv_heads=kv_heads, head_size=size, value_size=size, window=window)


def layers(**changed: Any) -> tuple[LayerKind, ...]:
    return ModelShape.read({**LLAMA, **changed}).layers


def test_the_head_size_is_given_or_derived() -> None:
    assert layers() == (kind(32, 8, 128),)
    assert layers(head_dim=256) == (kind(32, 8, 256),)
    assert layers(head_dim=None, hidden_size=2048) == (kind(32, 8, 64),)


def test_without_groups_each_head_has_its_own_kv() -> None:
    assert layers(num_key_value_heads=None) == (kind(32, 32, 128),)
    assert layers(num_key_value_heads=None, multi_query=True) == (kind(32, 1, 128),)


def test_a_model_of_several_modalities_keeps_its_language_model_inside() -> None:
    nested = {"model_type": "mllama", "vision_config": {"num_hidden_layers": 7}, "text_config": LLAMA}
    assert ModelShape.read(nested).layers == (kind(32, 8, 128),)
    assert ModelShape.read({"thinker_config": {"text_config": LLAMA}}).layers == (kind(32, 8, 128),)
    without = {**LLAMA, "torch_dtype": None}
    assert ModelShape.read({"dtype": "float16", "text_config": without}).kv_dtype == "float16"


def test_windows_of_all_layers_of_some_and_of_none() -> None:
    assert layers(model_type="mistral", sliding_window=4096) == (kind(32, 8, 128, 4096),)
    assert layers(model_type="qwen2", sliding_window=4096, use_sliding_window=False) == (kind(32, 8, 128),)
    some = layers(model_type="qwen2", sliding_window=99, use_sliding_window=True, max_window_layers=28)
    assert some == (kind(28, 8, 128), kind(4, 8, 128, 99))
    assert layers(model_type="gemma2", sliding_window=99) == (kind(16, 8, 128), kind(16, 8, 128, 99))
    assert layers(sliding_window=99, sliding_window_pattern=6) == (kind(5, 8, 128), kind(27, 8, 128, 99))
    named = 8 * ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
    assert layers(sliding_window=99, layer_types=named) == (kind(8, 8, 128), kind(24, 8, 128, 99))


def test_layers_that_read_anothers_kv_keep_none() -> None:
    named = ["full_attention", "sliding_attention"] * 16
    assert layers(num_kv_shared_layers=10, sliding_window=9, layer_types=named) == (
        kind(11, 8, 128),
        kind(11, 8, 128, 9),
    )
    with pytest.raises(SetupError, match="num_kv_shared_layers"):
        layers(num_kv_shared_layers=32)


def test_latent_attention_keeps_one_vector() -> None:
    found = layers(model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64)
    assert found == (LayerKind(layers=32, kv_heads=1, head_size=576, value_size=0),)
    with pytest.raises(NotSupported, match="'minicpm3' has latent attention"):
        layers(model_type="minicpm3", kv_lora_rank=256, qk_rope_head_dim=32)


@pytest.mark.parametrize(
    ("changed", "dtype"),
    [
        ({}, "bfloat16"),
        ({"torch_dtype": None, "dtype": "float16"}, "float16"),
        ({"torch_dtype": None}, "bfloat16"),
        ({"torch_dtype": "torch.float32"}, "bfloat16"),
        ({"quantization_config": {"quant_method": "fp8"}}, "bfloat16"),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}, "fp8"),
        ({"quantization_config": {"quantization": {"kv_cache_quant_algo": "FP8"}}}, "fp8"),
    ],
)
def test_values_have_the_models_type_unless_it_asks_for_another(changed: dict[str, Any], dtype: str) -> None:
    assert ModelShape.read({**LLAMA, **changed}).kv_dtype == dtype


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_hidden_layers": None}, "lacks 'num_hidden_layers': is it a language model's"),
        ({"num_attention_heads": "32"}, "'num_attention_heads' is '32'; it must be a positive whole number"),
        ({"num_attention_heads": True}, "'num_attention_heads' is True"),
        ({"num_key_value_heads": 0}, "'num_key_value_heads' is 0"),
        ({"hidden_size": -1}, "'hidden_size' is -1"),
        ({"hidden_size": 31}, "'hidden_size' is 31, less than the model's 32 attention heads"),
        ({"layer_types": ["full_attention"]}, "'layer_types' names 1 layers of 32"),
        ({"layer_types": ["sliding_attention"] * 32}, "'sliding_window' is missing"),
        ({"torch_dtype": "int3"}, "'dtype' is 'int3'"),
        ({"quantization_config": "fp8"}, "'quantization_config' is 'fp8'"),
        ({"num_kv_shared_layers": "2"}, "'num_kv_shared_layers' is '2'"),
        ({"sliding_window": 9, "sliding_window_pattern": "LLLG"}, "'sliding_window_pattern' is 'LLLG'"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        layers(**changed)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model_type": "mamba2", "state_size": 128}, "'mamba2' has state-space layers .*'state_size'"),
        ({"attn_layer_period": 8}, "'attn_layer_period'"),
        ({"index_topk": 2048}, "'index_topk'"),
        ({"layer_types": ["linear_attention"] * 32}, "layers of type 'linear_attention'"),
        ({"is_encoder_decoder": True}, "'is_encoder_decoder'"),
        ({"quantization_config": {"kv_cache_quant_algo": "NVFP4"}}, "NVFP4"),
    ],
)
def test_models_whose_kv_is_not_counted_are_refused_by_the_field_that_says_so(
    changed: dict[str, Any], field: str
) -> None:
    with pytest.raises(NotSupported, match=field):
        layers(**changed)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 99),
    st.sampled_from(
        ["", "full_attention", "bfloat16", "gemma2", "deepseek_v3", 2.5, [], [1], ["sliding_attention"], {}]
    ),
    st.dictionaries(st.sampled_from(["quantization", "kv_cache_scheme", "num_bits", "type"]), st.integers(0, 9)),
)
FIELDS = st.sampled_from(
    [
        *LLAMA,
        *("head_dim", "sliding_window", "layer_types", "use_sliding_window", "max_window_layers", "kv_lora_rank"),
        *(
            "sliding_window_pattern",
            "num_kv_shared_layers",
            "quantization_config",
            "dtype",
            "text_config",
            "multi_query",
        ),
        *("qk_rope_head_dim", "is_encoder_decoder", "state_size"),
    ]
)


@given(changed=st.dictionaries(FIELDS, VALUES, max_size=4))
def test_whatever_a_configuration_holds_is_read_or_refused(changed: dict[str, Any]) -> None:
    try:
        shape = ModelShape.read({**LLAMA, **changed})
    except SetupError:
        return
    assert sum(kind.layers for kind in shape.layers) >= 1


def test_attention_heads_bound_the_split() -> None:
    ModelShape.read(LLAMA).check_split(8)
    with pytest.raises(SetupError, match="tensor_parallel=3 does not divide the model's 32 attention heads"):
        ModelShape.read(LLAMA).check_split(3)
