"""What a file of recorded work holds, told by its content."""

from pathlib import Path
from typing import Literal

from agentkv.errors import SetupError
from agentkv.trace.trace_file import read_lines

__all__ = ("TraceKind", "trace_kind")

TraceKind = Literal["journal", "trajectories", "session hashes", "request hashes"]

_SQLITE = b"SQLite format 3\0"
_FIELDS: dict[TraceKind, tuple[str, ...]] = {
    "trajectories": ("turns",),
    "session hashes": ("requests", "block_size"),
    "request hashes": ("hash_ids", "input_length"),
}


def trace_kind(path: Path) -> TraceKind:
    """A journal of runs, trajectories, kv-cache-tester's hashes by session, or Mooncake's by request.

    Raises ``SetupError`` for a file that is missing or empty, and for anything else.
    """
    if path.is_dir():
        raise SetupError(f"{str(path)!r} is a folder; name one of its files")
    if not path.is_file():
        raise SetupError(f"there is no file {str(path)!r}")
    with path.open("rb") as stream:
        if stream.read(len(_SQLITE)) == _SQLITE:
            return "journal"
    first = next(read_lines(path), None)
    if first is None:
        raise SetupError(f"{path} is empty, so there is nothing to read")
    for kind, fields in _FIELDS.items():
        if all(field in first.fields for field in fields):
            return kind
    raise SetupError(
        f"{path} is no trace that is known: a journal (agentkv run --store sqlite:PATH), trajectories (objects with "
        "'turns'), or block hashes (objects with 'requests' and 'block_size', or with 'hash_ids' and 'input_length')"
    )
