"""The machine and the versions that a result belongs to."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ("machine_json", "versions_json")


def machine_json() -> dict[str, Any]:
    """Kind of machine, processor, and cores that this process may use."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def versions_json(engine: str, commit: str | None) -> dict[str, str]:
    """Python, agentkv with its ``commit`` where that is known, the engine's own version, and the date in UTC."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "agentkv": _installed("agentkv"),
        **({} if commit is None else {"commit": commit}),
        "engine": engine,
    }


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
