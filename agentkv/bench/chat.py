"""Which tokenizer and chat template a replay is rendered with."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentkv.chain import ChatFormat
from agentkv.engines.demo_model import demo_model_path
from agentkv.engines.model_folder import ModelFolder, find_model
from agentkv.engines.sim import MODEL_PATH
from agentkv.errors import SetupError

__all__ = ("find_chat",)

REMEDY = "give --tokenizer PATH, a folder with tokenizer.json and a chat template"


def find_chat(
    engine: str, options: Mapping[str, Any], given: Path | None, progress: Callable[[str], None]
) -> tuple[ChatFormat, Path]:
    """The format of the engine's own model, or of the folder ``given``, and where it was read.

    ``engine`` and ``options`` are those that the engine will be started with. Raises ``SetupError`` where there is
    none, or one with more ids than the model knows.
    """
    if given is not None and not given.is_dir():
        raise SetupError(f"--tokenizer {given}: no such folder; {REMEDY}")
    kind, _, name = engine.partition(":")
    if kind == "sim":
        folder = MODEL_PATH if given is None else given
        return ChatFormat.load(folder), folder
    model = find_model(name or str(demo_model_path(progress)), options.get("revision"), tokenizer=False)
    folder = given if given is not None else _own(model, options)
    if not (folder / "tokenizer.json").is_file():
        whose = f"engine {engine!r} has no tokenizer" if given is None else f"--tokenizer {given}: no tokenizer.json"
        raise SetupError(f"{whose}; {REMEDY}")
    chat = ChatFormat.load(folder)
    if (size := model.vocab_size) is not None and chat.tokenizer.vocab_size > size:
        raise SetupError(
            f"the tokenizer in {folder} has {chat.tokenizer.vocab_size} ids, the model {size}; "
            "give --tokenizer PATH, one with no more"
        )
    return chat, folder


def _own(model: ModelFolder, options: Mapping[str, Any]) -> Path:
    tokenizer = options.get("tokenizer")
    return model.path if tokenizer is None else find_model(tokenizer, options.get("tokenizer_revision")).path
