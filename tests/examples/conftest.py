"""The example files as modules, each fresh."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def load() -> Callable[[str], ModuleType]:
    """Import ``examples/NAME.py`` anew: its script has answered nobody yet."""

    def load_example(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_example


@pytest.fixture
def steady(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """As ``load``; what the tools measure of this machine comes out the same each time."""

    def load_steady(name: str) -> ModuleType:
        module = load(name)
        if hasattr(module, "timed_write"):
            monkeypatch.setattr(module, "timed_write", lambda file, block: len(block) / 1e8)
            monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(total=100, free=19))
        return module

    return load_steady
