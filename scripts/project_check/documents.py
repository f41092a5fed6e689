"""What the project's files say: nothing about one machine, and only Python that is Python."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ("Block", "blocks", "check", "check_block", "check_text", "pages")

# Written in parts, so that this file passes its own rule.
PRIVATE = re.compile(
    "|".join(
        (
            r"(?<![\w.])/" + r"(work|farm|root|home/\w+)/",
            r"(?<![\w.])/" + r"(tmp|opt)/\w",
            r"pypi" + r"\.org",
            r"python" + r"hosted\.",
            r"download\." + r"pytorch",
            r"npm" + r"js\.",
            r"deb\." + r"debian",
        )
    )
)
FENCE = re.compile(
    r"^(?P<indent>[ ]*)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
RECORDED = "tests/data/"  # what others wrote, kept as it was
NORUN = re.compile(r"<!-- norun(?P<reason>:[^>]*)? -->\s*\Z")


class Block(NamedTuple):
    """A fenced Python block: where it starts, its code, and whether the tests run it.

    A block is run unless the line before its fence is ``<!-- norun: why -->``, which renders as nothing.
    """

    line: int
    code: str
    runs: bool
    has_reason: bool


def pages(root: Path) -> list[Path]:
    """The README and every page of the documentation."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """The Python blocks of a Markdown page, in order."""
    return [_block(text, found) for found in FENCE.finditer(text)]


def _block(text: str, found: re.Match[str]) -> Block:
    indent = len(found["indent"])
    code = "".join(line[indent:] if line.strip() else "\n" for line in found["code"].splitlines(keepends=True))
    norun = NORUN.search(text[: found.start()].rstrip("\n") + "\n")
    has_reason = norun is not None and bool((norun["reason"] or "").strip(": "))
    return Block(text.count("\n", 0, found.start()) + 2, code, norun is None, has_reason)


def check(root: Path) -> Iterator[str]:
    """Check every tracked file but recorded data, and every Python block of the documentation."""
    for path in _tracked(root):
        yield from check_text(str(path.relative_to(root)), path.read_text(errors="replace"))
    for page in pages(root):
        for block in blocks(page.read_text()):
            yield from check_block(str(page.relative_to(root)), block)


def _tracked(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    own = (name for name in listed.splitlines() if not name.startswith(RECORDED))
    return [path for name in own if (path := root / name).is_file()]


def check_text(name: str, text: str) -> Iterator[str]:
    """Say where a file names a path of one machine or the host of a package registry."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := PRIVATE.search(line):
            yield f"{name}:{number}: names {found.group()!r}, which means something on one machine only"


def check_block(name: str, block: Block) -> Iterator[str]:
    """Say whether a block is not Python, or is kept from running without a reason."""
    if not (block.runs or block.has_reason):
        yield f"{name}:{block.line}: say why this block is not run: <!-- norun: why -->"
    try:
        compile(block.code, name, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        yield f"{name}:{block.line + (error.lineno or 1) - 1}: this is not Python: {error.msg}"
