"""Files of recorded work, plain or gzip-compressed: their places and their lines as JSON objects.

What is wrong with one is a ``SetupError`` that names the file, the line, and what to do.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from attrs import frozen

from agentkv.errors import SetupError

__all__ = ("MAX_LINE_BYTES", "Line", "find_files", "read_lines", "seconds", "typed")

MAX_LINE_BYTES = 64 << 20
# Thirty million years: what is more is no time, and a whole number may be more than any float.
MAX_SECONDS = 1e15


@frozen
class Line:
    """One JSON object of a file, and where it stands."""

    path: Path
    number: int
    fields: Mapping[str, Any]

    @property
    def place(self) -> str:
        """File and line, for people."""
        return f"{self.path}, line {self.number}"

    def field(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The field's value. Raises ``SetupError`` where it is missing or of another kind."""
        return typed(self.fields, name, kind, self.place)


def typed(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...], place: str) -> Any:
    """``fields[name]``. Raises ``SetupError`` where it is missing or of another kind than ``kind``."""
    value = fields.get(name)
    # A truth value is no number, whatever Python says.
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(_JSON_NAMES.get(each, each.__name__) for each in kinds)
    found = "is missing" if name not in fields else f"is {json.dumps(value)[:60]}"
    raise SetupError(f"{place}: field {name!r} {found}; it must be {wanted}")


def seconds(fields: Mapping[str, Any], name: str, place: str) -> float:
    """``fields[name]``, a number of seconds. Raises ``SetupError`` as ``typed`` does, and out of bounds."""
    value = typed(fields, name, (int, float), place)
    if not 0 <= value <= MAX_SECONDS:
        raise SetupError(f"{place}: field {name!r} is {str(value)[:60]}; it must be at least 0, and a time in seconds")
    return float(value)


_JSON_NAMES = {str: "text", list: "a list", dict: "an object", int: "a whole number", float: "a number"}


def find_files(paths: Iterable[Path], endings: tuple[str, ...]) -> list[Path]:
    """The files of ``paths``, and of each folder those in it with one of ``endings``, by name.

    Raises ``SetupError`` for a path that does not exist and a folder without such a file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.name.endswith(endings))
            if not inside:
                raise SetupError(f"{path}: the folder has no file that ends in {' or '.join(endings)}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise SetupError(f"{path}: no such file or folder; name what is there")
    return list(dict.fromkeys(found))


def read_lines(path: Path) -> Iterator[Line]:
    """Each line that is not empty. Raises ``SetupError`` for what cannot be read or is no JSON object."""
    number = 0
    try:
        with _open(path) as stream:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise SetupError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES >> 20} MiB; give one JSON object a line"
                    )
                if raw.strip():
                    yield Line(path, number, _object(raw, f"{path}, line {number}"))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SetupError(f"{path}, behind line {number}: {error}; the file is damaged, fetch it anew") from error
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def _object(raw: bytes, place: str) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        # Bytes that are no UTF-8 are a ValueError as well.
        raise SetupError(f"{place}: not JSON ({error}); give one JSON object a line") from error
    if not isinstance(found, dict):
        raise SetupError(f"{place}: {type(found).__name__} and no object; give one JSON object a line")
    return found
