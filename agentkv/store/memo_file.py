"""Remembered results of tools in a JSON file that its owner alone can read."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from agentkv.errors import StoreError
from agentkv.follow import Memo, Memos

__all__ = ("MemoName", "kept_memos", "read_memos", "write_memos")

SCHEMA = "agentkv.memo/1"
#: Whose memo it is: the tenant, as records name it, and the agent.
MemoName = tuple[str, str]


@contextmanager
def kept_memos(file: str | PathLike[str] | None, most_bytes: int) -> Iterator[Memos]:
    """Memos of ``most_bytes`` each; with ``file``, those in it, which is written again at the end.

    Raises ``StoreError``; where the body raised, that error goes on, with a note of what could not be written.
    """
    if file is None:
        yield Memos(most_bytes, None)
        return
    path = Path(file)
    memos = Memos(most_bytes, read_memos(path, most_bytes))
    try:
        yield memos
    except BaseException as error:
        try:
            write_memos(path, dict(memos.items()))
        except StoreError as unwritten:
            error.add_note(str(unwritten))
        raise
    write_memos(path, dict(memos.items()))


def read_memos(path: Path, most_bytes: int) -> dict[MemoName, Memo]:
    """The memos of the file ``path``, each of ``most_bytes`` at the most; none where there is no file.

    Raises ``StoreError`` for a file that cannot be read, is of another kind, or can be read by others, and where its
    folder is missing.
    """
    try:
        if not path.parent.is_dir():
            raise StoreError(f"memo file {str(path)!r}: its folder is missing; make it first")
        if path.is_fifo():
            # It would be waited for without end.
            raise StoreError(f"{str(path)!r} is no memo file but a pipe; name another path")
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise StoreError(f"memo file {str(path)!r} can be read by others; chmod 600 it")
            content = json.load(file)
        return {
            (str(each["owner"]), str(each["agent"])): _memo(each["results"], most_bytes) for each in _checked(content)
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"memo file {str(path)!r} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{str(path)!r} is no memo file; name another path, or remove it") from error


def write_memos(path: Path, memos: Mapping[MemoName, Memo]) -> None:
    """Replace the file ``path`` in one step. Raises ``StoreError`` if it cannot be written."""
    content = {
        "schema": SCHEMA,
        "memos": [
            {"owner": owner, "agent": agent, "results": [[*key, text] for key, text in memo.items()]}
            for (owner, agent), memo in sorted(memos.items())
        ],
    }
    try:
        # mkstemp gives the file to its owner alone.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                json.dump(content, file, ensure_ascii=False)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise StoreError(f"memo file {str(path)!r} cannot be written: {error}") from error


def _checked(content: Any) -> list[dict[str, Any]]:
    if content["schema"] != SCHEMA:
        raise ValueError(content["schema"])
    memos: list[dict[str, Any]] = content["memos"]
    return memos


def _memo(results: list[list[Any]], most_bytes: int) -> Memo:
    memo = Memo(most_bytes)
    for tool, arguments, text in results:
        if not (isinstance(tool, str) and isinstance(arguments, str) and isinstance(text, str)):
            raise TypeError(tool)
        memo.remember((tool, arguments), text)
    return memo
