"""Where a model's files are, and what its configuration says before any engine has read it."""

import json
from pathlib import Path
from typing import Any

from attrs import frozen

from agentkv.errors import EngineStartError, SetupError
from agentkv.kv import DTYPE_BYTES, ModelShape, bytes_per_token

__all__ = ("ModelFolder", "find_model")

# What is fetched ahead of the weights, so that a wrong name or a missing tokenizer is found in seconds.
SMALL_FILES = ("*.json", "*.jinja", "*.model", "*.txt")


@frozen(kw_only=True)
class ModelFolder:
    """``name`` is what an engine loads (a folder, or a hub name); ``path`` holds configuration and tokenizer."""

    name: str
    path: Path
    config: dict[str, Any]

    @property
    def weight_bytes(self) -> int:
        """Size of the weights in the folder in bytes; 0 while they are not there."""
        return sum(file.stat().st_size for file in self.path.glob("*.safetensors"))

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that the configuration names, in tokens, if it names one."""
        value = self._text("max_position_embeddings")
        return value if isinstance(value, int) else None

    @property
    def vocab_size(self) -> int | None:
        """How many token ids the model knows, if the configuration says."""
        value = self._text("vocab_size")
        return value if isinstance(value, int) else None

    @property
    def kv_bytes_per_token(self) -> int | None:
        """KV bytes of one token as the configuration has it, on one device; None where that is not counted."""
        try:
            shape = ModelShape.read(self.config)
        except SetupError:
            return None
        return bytes_per_token(shape.layers, dtype_bytes=DTYPE_BYTES[shape.kv_dtype])

    def _text(self, key: str) -> Any:
        # Models of several modalities nest the language model's configuration.
        return (self.config.get("text_config") or self.config).get(key)


def find_model(model: str, revision: str | None = None, *, tokenizer: bool = True) -> ModelFolder:
    """The folder of ``model``: a path, or a name ``owner/name`` on the Hugging Face hub (fetched or cached).

    Raises ``EngineStartError`` when it is missing, or is not a model with, unless ``tokenizer`` is False, a
    ``tokenizer.json``.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _read(str(folder.resolve()), folder.resolve(), tokenizer)
    if folder.exists():
        raise EngineStartError(f"model {model!r} is a file: name the folder that holds config.json and the weights")
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise EngineStartError(f"model {model!r}: no such folder; name one, or a hub model as 'owner/name'")
    return _read(model, _fetch(model, revision), tokenizer)


def _fetch(model: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EngineStartError(f"model {model!r} is no folder here, and huggingface_hub is not installed") from error
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(SMALL_FILES)))
    except Exception as error:
        # The hub's client raises its own, requests' and httpx's errors; each is the same to the user.
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngineStartError(
            f"model {model!r} is no folder here and cannot be fetched from the hub: {line}"
        ) from error


def _read(name: str, path: Path, tokenizer: bool) -> ModelFolder:
    for needed in ("config.json", "tokenizer.json") if tokenizer else ("config.json",):
        if not (path / needed).is_file():
            raise EngineStartError(f"model {name!r}: {path} has no {needed}, so it is no model folder that can be used")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineStartError(f"model {name!r}: {path / 'config.json'} is not JSON ({error})") from error
    if not isinstance(config, dict):
        raise EngineStartError(f"model {name!r}: {path / 'config.json'} does not hold a JSON object")
    return ModelFolder(name=name, path=path, config=config)
