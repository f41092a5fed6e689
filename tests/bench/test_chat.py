"""Which tokenizer a replay gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.bench import find_chat
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import SetupError


def silent(_: str) -> None:
    """Where nobody listens."""


def model(folder: Path, vocabulary: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocabulary}))
    return f"vllm:{folder}"


def test_an_engine_without_tokenizer_takes_the_one_given(tmp_path: Path) -> None:
    spec = model(tmp_path / "bare", 32000)
    chat, folder = find_chat(spec, {"skip_tokenizer_init": True}, MODEL_PATH, silent)
    assert folder == MODEL_PATH
    assert chat.stop_ids
    with pytest.raises(SetupError, match=r"has no tokenizer; give --tokenizer PATH"):
        find_chat(spec, {}, None, silent)
    assert find_chat(spec, {"tokenizer": str(_with_config(tmp_path / "own"))}, None, silent)[1].name == "own"


def _with_config(folder: Path) -> Path:
    model(folder, 1)
    for file in MODEL_PATH.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_the_simulator_has_its_own(tmp_path: Path) -> None:
    assert find_chat("sim:h200", {}, None, silent)[1] == MODEL_PATH
    assert find_chat("sim", {}, _with_config(tmp_path / "other"), silent)[1].name == "other"


def test_ids_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"has \d+ ids, the model 1000; give --tokenizer"):
        find_chat(model(tmp_path / "small", 1000), {}, MODEL_PATH, silent)
    assert find_chat(model(tmp_path / "unsaid", None), {}, MODEL_PATH, silent)


def test_a_folder_without_tokenizer_is_named(tmp_path: Path) -> None:
    engine = model(tmp_path / "bare", 1)
    with pytest.raises(SetupError, match=r"--tokenizer .*none: no such folder"):
        find_chat(engine, {}, tmp_path / "none", silent)
    with pytest.raises(SetupError, match=r"--tokenizer .*: no tokenizer\.json"):
        find_chat(engine, {}, tmp_path, silent)
