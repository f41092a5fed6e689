"""What ``agentkv bench`` writes to files, checked before an hour is spent on a result that nobody can keep."""

import argparse
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentkv.bench import page, require_plotting
from agentkv.errors import AgentKVError, SetupError

__all__ = ("check_outputs", "check_writable", "write_json", "write_outputs", "write_text")


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
    """Write the machine form and the page, where asked to. Raises ``AgentKVError`` as ``write_text``."""
    write_json(options, result)
    if options.html is not None:
        write_text("--html", options.html, page(result))


def write_json(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Write the machine form, where asked to, in place of what was written before.

    Raises ``AgentKVError`` as ``write_text``.
    """
    if options.json is not None:
        # Strictly JSON: a number that is none would be a mistake of ours, and a reader's trouble.
        write_text("--json", options.json, json.dumps(result, indent=1, allow_nan=False) + "\n")


def write_text(option: str, file: Path, text: str) -> None:
    """Have ``text`` in ``file``, or what was there before.

    Raises ``AgentKVError``, which names ``option``, if the disk does not take it.
    """
    whole = file.resolve()
    try:
        if whole.exists() and not whole.is_file():
            # A device or a pipe is written to, and stays what it is.
            whole.write_text(text, encoding="utf-8")
        else:
            _replace(whole, text)
    except OSError as error:
        raise AgentKVError(f"{option} {file} was not written ({error.strerror}): make room, or name another") from error


def _replace(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except PermissionError:
        # The folder takes no further file; this one can be written.
        file.write_text(text, encoding="utf-8")
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
