"""Machines of the simulator in files: what ``agentkv bench calibrate`` writes and ``sim:FILE.json`` reads."""

import json
import math
from pathlib import Path
from typing import Any

from attrs import asdict, fields

from agentkv.engines.sim_machine import Machine, StepCost, find_machine, option_problem
from agentkv.errors import EngineStartError

__all__ = ("PRESET_SCHEMA", "find_preset", "preset_json", "read_preset")

PRESET_SCHEMA = "agentkv.sim/1"


def preset_json(machine: Machine) -> dict[str, Any]:
    """The machine as a JSON object."""
    return {"schema": PRESET_SCHEMA, **asdict(machine)}


def find_preset(preset: str) -> Machine:
    """The machine of that name, or in that file where it ends in ``.json``.

    Raises ``EngineStartError`` for an unknown name, and as ``read_preset`` does.
    """
    return read_preset(Path(preset)) if preset.endswith(".json") else find_machine(preset)


def read_preset(path: Path) -> Machine:
    """The machine in a file. Raises ``EngineStartError`` for one that is not what ``preset_json`` gives."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineStartError(f"preset {str(path)!r} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.pop("schema", None) != PRESET_SCHEMA:
        raise EngineStartError(f"preset {str(path)!r} is not of the schema {PRESET_SCHEMA!r}; calibrate anew")
    found.pop("fitted", None)
    cost = _numbers(path, found.pop("cost", None), {field.name for field in fields(StepCost)})
    names = {field.name for field in fields(Machine)} - {"cost"}
    values = {"cost": StepCost(**cost), **_numbers(path, found, names)}
    for name, value in values.items():
        if problem := option_problem(name, value):
            raise EngineStartError(f"preset {str(path)!r}: {name}={value!r} {problem}")
    return Machine(**values)


def _numbers(path: Path, found: Any, names: set[str]) -> dict[str, Any]:
    if not isinstance(found, dict) or set(found) != names:
        wrong = min(set(found) ^ names) if isinstance(found, dict) else "cost"
        raise EngineStartError(f"preset {str(path)!r}: {wrong!r} is missing, or not known; calibrate anew")
    for name, value in found.items():
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise EngineStartError(f"preset {str(path)!r}: {name}={value!r} must be a number from 0")
    return found
