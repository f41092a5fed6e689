"""Where a model's files are."""

import json
from pathlib import Path

import pytest

from agentkv.engines.model_folder import find_model
from agentkv.errors import EngineStartError


def make(folder: Path, config: object = None, *, tokenizer: bool = True) -> Path:
    (folder / "config.json").write_text(json.dumps(config or {}))
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_folder_is_read(tmp_path: Path) -> None:
    text = {"num_attention_heads": 8, "num_hidden_layers": 4, "hidden_size": 512, "max_position_embeddings": 4096}
    model = find_model(str(make(tmp_path, {"text_config": text})))
    assert (model.name, model.path) == (str(tmp_path), tmp_path)
    assert model.max_positions == 4096
    assert model.kv_bytes_per_token == 2 * 4 * 8 * 64 * 2


def test_latent_attention_has_no_such_size(tmp_path: Path) -> None:
    config = {"num_attention_heads": 8, "num_hidden_layers": 4, "hidden_size": 512, "kv_lora_rank": 64}
    assert find_model(str(make(tmp_path, config))).kv_bytes_per_token is None


@pytest.mark.parametrize("model", ["missing", "./missing", "/no/such", "a/b/c", "~/no/such"])
def test_a_missing_folder_is_named(model: str) -> None:
    with pytest.raises(EngineStartError, match=f"model '{model}': no such folder; name one, or a hub model"):
        find_model(model)


def test_a_folder_without_a_model_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match=r"has no config\.json"):
        find_model(str(tmp_path))
    with pytest.raises(EngineStartError, match=r"has no tokenizer\.json"):
        find_model(str(make(tmp_path, tokenizer=False)))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = make(tmp_path) / "config.json"
    with pytest.raises(EngineStartError, match="is a file: name the folder"):
        find_model(str(file))


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineStartError, match=r"config\.json is not JSON"):
        find_model(str(tmp_path))
