"""Find the agent or graph that ``FILE[:NAME]`` names."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from attrs import frozen

from agentkv.errors import AgentKVError, SetupError
from agentkv.graph import Agent, Graph

__all__ = ("Target", "load", "load_function")

# Where a file declares both, its graph is what it is about.
_USUAL = ("graph", "agent")


@frozen(kw_only=True)
class Target:
    """What to run, and the file it comes from."""

    value: Agent[Any, Any] | Graph[Any, Any]
    module: ModuleType

    def get(self, name: str) -> Any:
        """The module's ``name``, or None."""
        return getattr(self.module, name, None)


def load(spec: str) -> Target:
    """Import the file and pick from it. Raises ``SetupError`` that says what is there to choose from."""
    path, _, name = spec.rpartition(":") if ":" in spec and not Path(spec).exists() else (spec, "", "")
    module = _import(Path(path))
    found = {key: value for key, value in vars(module).items() if isinstance(value, Agent | Graph)}
    if name:
        if name not in found:
            raise SetupError(f"{path} has no agent or graph {name!r}; it has {_list(found)}")
        return Target(value=found[name], module=module)
    usual = next((key for key in _USUAL if key in found), None)
    if usual is None and len(found) != 1:
        raise SetupError(f"say which of {path} to run, as {path}:NAME; it has {_list(found)}")
    return Target(value=found[usual] if usual else next(iter(found.values())), module=module)


def load_function(spec: str) -> FunctionType:
    """The function that ``FILE:NAME`` names. Raises ``SetupError``."""
    path, _, name = spec.rpartition(":")
    if not path:
        raise SetupError(f"{spec!r} names no function; give it as FILE:NAME")
    found = getattr(_import(Path(path)), name, None)
    if not isinstance(found, FunctionType):
        raise SetupError(f"{path} has no function {name!r}")
    return found


def _list(found: dict[str, Any]) -> str:
    return ", ".join(repr(name) for name in found) or "neither agents nor graphs"


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise SetupError(f"there is no file {str(path)!r}")
    # Python makes the names of files in tracebacks absolute.
    place = path.absolute()
    spec = importlib.util.spec_from_file_location(path.stem, place)
    if spec is None or spec.loader is None:
        raise SetupError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(place.parent))
    try:
        spec.loader.exec_module(module)
    except AgentKVError:
        raise
    except Exception as error:
        at = next((f" (line {frame.lineno})" for frame in _frames(error) if frame.filename == str(place)), "")
        raise SetupError(f"{path}{at} does not import: {type(error).__name__}: {error}") from error
    return module


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(reversed(traceback.extract_tb(error.__traceback__)))
