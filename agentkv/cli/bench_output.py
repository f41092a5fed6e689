"""What ``agentkv bench`` writes to files, checked before an hour is spent on a result that nobody can keep."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentkv.bench import page, require_plotting
from agentkv.errors import SetupError

__all__ = ("check_outputs", "check_writable", "write_json", "write_outputs")


def check_outputs(options: argparse.Namespace) -> None:
    """Raise ``SetupError`` if a file asked for cannot be written, or what draws the page is not installed."""
    for option in ("json", "html"):
        if (file := getattr(options, option)) is not None:
            check_writable(f"--{option}", file)
    if options.html is not None:
        require_plotting()


def check_writable(option: str, file: Path) -> None:
    """Raise ``SetupError``, which names ``option``, if ``file`` cannot be written."""
    if not file.parent.is_dir():
        raise SetupError(f"{option} {file}: there is no folder {str(file.parent)!r}")
    existed = file.exists()
    try:
        file.open("a").close()
    except OSError as error:
        raise SetupError(f"{option} {file} cannot be written ({error.strerror}): name another file") from None
    if not existed:
        file.unlink()


def write_outputs(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write the machine form and the page, where asked to."""
    write_json(options, result)
    if options.html is not None:
        options.html.write_text(page(result), encoding="utf-8")


def write_json(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write the machine form, where asked to, in place of what was written before."""
    if options.json is not None:
        # Strictly JSON: a number that is none would be a mistake of ours, and a reader's trouble.
        options.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
