"""Worlds that are built in the tests, for tables of what these hold."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

__all__ = ("from_tests",)

TESTS = Path(__file__).parents[2] / "tests"


def from_tests(name: str) -> ModuleType:
    """The test module ``FOLDER.MODULE``. Its folder's name is looked for among the tests only while it is imported."""
    sys.path.insert(0, str(TESTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TESTS))
