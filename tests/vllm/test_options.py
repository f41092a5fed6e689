"""Which arguments vLLM is started with."""

from pathlib import Path
from typing import Any

import pytest
from attrs import asdict

from agentkv.engines.model_folder import ModelFolder
from agentkv.engines.vllm_kv import managed_options
from agentkv.engines.vllm_options import engine_arguments
from agentkv.engines.vllm_tier import check_tier, tier_bytes, tier_line
from agentkv.errors import EngineStartError, NotSupported
from agentkv.kv import PolicySettings

GIB = 1 << 30
KNOWN = ("dtype", "block_size", "gpu_memory_utilization", "max_model_len", "kv_cache_memory_bytes", "seed")
CONFIG = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "hidden_size": 576}


@pytest.fixture
def model(tmp_path: Path) -> ModelFolder:
    return ModelFolder(name="some/model", path=tmp_path, config=CONFIG | {"max_position_embeddings": 8192})


def arguments(model: ModelFolder, free: int | None = 16 * GIB, **options: object) -> dict[str, object]:
    return engine_arguments(model, options, known=(*KNOWN, "data_parallel_size"), cpu_free_bytes=free)


def test_what_the_user_sets_wins(model: ModelFolder) -> None:
    given = arguments(model, dtype="float32", block_size=64, seed=3)
    assert (given["dtype"], given["block_size"], given["seed"]) == ("float32", 64, 3)
    assert given["enforce_eager"] is True


def test_an_accelerator_keeps_vllms_own_defaults(model: ModelFolder) -> None:
    assert set(arguments(model, free=None)) == {
        "model",
        "enable_prefix_caching",
        "disable_log_stats",
        "use_tqdm_on_load",
    }


def test_unknown_option_names_its_neighbours(model: ModelFolder) -> None:
    with pytest.raises(EngineStartError, match=r"'gpu-memory-utilisation' .* near it: gpu_memory_utilization"):
        engine_arguments(model, {"gpu-memory-utilisation": 1}, known=KNOWN, cpu_free_bytes=None)
    with pytest.raises(EngineStartError, match=r"'zzz' is none of vLLM's engine arguments$"):
        arguments(model, zzz=1)


def test_the_model_is_named_in_one_place(model: ModelFolder) -> None:
    with pytest.raises(EngineStartError, match="option 'model'"):
        engine_arguments(model, {"model": "x"}, known=("model",), cpu_free_bytes=None)


def test_several_schedulers_are_refused(model: ModelFolder) -> None:
    with pytest.raises(NotSupported, match="data_parallel_size=2"):
        arguments(model, data_parallel_size=2)
    assert arguments(model, data_parallel_size=1)["data_parallel_size"] == 1


@pytest.mark.parametrize(("positions", "length"), [(2048, 2048), (131_072, 8192)])
def test_maximum_length_is_bounded_on_the_cpu(tmp_path: Path, positions: int, length: int) -> None:
    model = ModelFolder(name="m", path=tmp_path, config=CONFIG | {"max_position_embeddings": positions})
    assert arguments(model)["max_model_len"] == length


def test_pool_holds_two_full_sequences_or_a_gibibyte_within_what_is_free(tmp_path: Path, model: ModelFolder) -> None:
    assert arguments(model)["kv_cache_memory_bytes"] == GIB
    # 32 layers, 32 heads of 128 values: half a mebibyte a token, 4 GiB for a sequence of 8,192.
    heavy = CONFIG | {"num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32, "head_dim": 128}
    large = ModelFolder(name="m", path=tmp_path, config=heavy | {"max_position_embeddings": 8192})
    assert arguments(large)["kv_cache_memory_bytes"] == 8 * GIB
    assert arguments(large, free=7 * GIB)["kv_cache_memory_bytes"] == 7 * GIB - 3 * GIB // 2


def test_too_little_memory_is_refused_with_the_numbers(model: ModelFolder) -> None:
    (model.path / "model.safetensors").write_bytes(b"x" * (1 << 20))
    with pytest.raises(EngineStartError, match=r"'some/model' does not fit in memory: .*but 1\.0 GiB are free"):
        arguments(model, free=GIB)
    assert arguments(model, free=GIB, kv_cache_memory_bytes=1 << 28)["kv_cache_memory_bytes"] == 1 << 28


def test_a_second_tier_that_the_machine_has_no_memory_for_is_refused_by_name(model: ModelFolder) -> None:
    with pytest.raises(EngineStartError, match=r"cpu_tier_bytes=8589934592 \(8\.0 GiB\) is more than the 4\.0 GiB"):
        check_tier(8 * GIB, model, 4 * GIB)
    with pytest.raises(EngineStartError, match=r"does not hold one block of model 'some/model'.*raise it"):
        check_tier(1000, model, 4 * GIB)
    check_tier(GIB, model, 4 * GIB)
    check_tier(GIB, model, None)
    check_tier(0, model, 0)


def test_the_tier_is_read_from_where_the_scheduler_reads_it_and_said() -> None:
    assert tier_bytes({"additional_config": {"agentkv": {"cpu_tier_bytes": GIB}}}) == GIB
    assert tier_bytes({"additional_config": None}) == tier_bytes({}) == 0
    said = tier_line({"tier_slots": 1024, "block_size": 32, "tier_bytes": GIB})
    assert said == "second tier: 1.00 GiB of host memory reserved, 1024 blocks, 32,768 tokens"


@pytest.mark.parametrize("forcing", [False, True])
def test_options_beside_those_of_managed_kv_are_kept(forcing: bool) -> None:
    settings = PolicySettings(kv_pool_ratio=0.5)
    given = {"additional_config": {"other": 1}, "scheduler_cls": None, "seed": 3}
    found = managed_options(given, settings, forcing=forcing)
    assert found["additional_config"] == {"other": 1, "agentkv": asdict(settings)}
    assert found["scheduler_cls"].startswith("agentkv.plugin.")
    assert found["seed"] == 3
    assert managed_options(given, None, forcing=False) == given


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler_cls": "mine.Scheduler"},
        {"additional_config": {"agentkv": {"kv_pool_ratio": 0.1}}},
        {"additional_config": "text"},
    ],
)
def test_options_that_would_put_managed_kv_aside_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(NotSupported, match=f"option {name}="):
        managed_options(options, PolicySettings(), forcing=False)
    assert managed_options(options, None, forcing=False) == options
