"""Reads what a docstring says about a function and its parameters: Google, NumPy and Sphinx styles.

Only the description and the parameters matter here, and the text enters prompts whose tokens must not
change with the version of a dependency; that is why this is a small parser of our own.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from attrs import frozen

__all__ = ("Docstring", "read_docstring")

_GOOGLE_PARAMETERS = (
    *("Args", "Arguments", "Parameters", "Params"),
    *("Keyword Args", "Keyword Arguments", "Other Parameters"),
)
_GOOGLE_OTHER = (
    *("Attributes", "Example", "Examples", "Note", "Notes", "Raises", "References", "Return", "Returns"),
    *("See Also", "Warning", "Warnings", "Warns", "Yield", "Yields"),
)
_GOOGLE_HEADER = re.compile(rf"({'|'.join((*_GOOGLE_PARAMETERS, *_GOOGLE_OTHER))}):\s*$")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?\s*:\s*(.*)")
_NUMPY_RULE = re.compile(r"-{3,}\s*$")
_NUMPY_PARAMETERS = ("Parameters", "Other Parameters")
_SPHINX_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_SPHINX_PARAMETERS = ("param", "parameter", "arg", "argument", "key", "keyword")
_SPHINX_OTHER = ("type", "raises", "raise", "except", "exception", "return", "returns", "rtype", "yield", "yields")


@frozen
class Docstring:
    """``description`` is the text before the first section; ``parameters`` maps names to descriptions."""

    description: str
    parameters: Mapping[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Parse a docstring; a section of a style not known here ends up in the description."""
    lines = inspect.cleandoc(text or "").splitlines()
    first = next((index for index in range(len(lines)) if _starts_section(lines, index)), len(lines))
    found: dict[str, list[str]] = {}
    for name, piece in _pieces(lines[first:]):
        found.setdefault(name, []).append(piece.strip())
    description = "\n".join(line.rstrip() for line in lines[:first]).strip()
    return Docstring(description, {name: " ".join(filter(None, pieces)) for name, pieces in found.items()})


def _starts_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    if _GOOGLE_HEADER.match(line) or ((entry := _SPHINX_FIELD.match(line)) and _is_sphinx(entry)):
        return True
    return _is_numpy_header(lines, index)


def _is_numpy_header(lines: list[str], index: int) -> bool:
    following = lines[index + 1] if index + 1 < len(lines) else ""
    return bool(lines[index].strip()) and bool(_NUMPY_RULE.match(following))


def _is_sphinx(entry: re.Match[str]) -> bool:
    return entry[1] in (*_SPHINX_PARAMETERS, *_SPHINX_OTHER)


def _pieces(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (parameter, piece of its description) in order, whichever style each section has."""
    for start, end in _sections(lines):
        body = lines[start:end]
        if entry := _SPHINX_FIELD.match(body[0]):
            yield from _sphinx(entry, body[1:])
        elif header := _GOOGLE_HEADER.match(body[0]):
            if header[1] in _GOOGLE_PARAMETERS:
                yield from _google(body[1:])
        elif body[0].strip() in _NUMPY_PARAMETERS:
            yield from _numpy(body[2:])


def _sections(lines: list[str]) -> Iterator[tuple[int, int]]:
    starts = [index for index in range(len(lines)) if _starts_section(lines, index)]
    yield from pairwise([*starts, len(lines)])


def _sphinx(entry: re.Match[str], rest: list[str]) -> Iterator[tuple[str, str]]:
    words = (entry[2] or "").split()
    if entry[1] not in _SPHINX_PARAMETERS or not words:
        return
    yield words[-1].lstrip("*"), entry[3]
    for line in rest:
        if not line.startswith((" ", "\t")):
            return
        yield words[-1].lstrip("*"), line


def _google(body: list[str]) -> Iterator[tuple[str, str]]:
    margin = next((_indent(line) for line in body if line.strip()), 0)
    name = ""
    for line in body:
        if not line.strip():
            continue
        if margin == 0 or _indent(line) < margin:
            return
        entry = _GOOGLE_ENTRY.match(line.strip()) if _indent(line) == margin else None
        if entry:
            name = entry[1]
        if name:
            yield name, entry[2] if entry else line


def _numpy(body: list[str]) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    for line in body:
        if line.strip() and _indent(line) == 0:
            names = [name.strip().lstrip("*") for name in line.split(":")[0].split(",")]
        else:
            yield from ((name, line) for name in names)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
