"""The Python in the README and the documentation runs, page by page, on the simulator, and prints what they show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from project_check.documents import blocks, pages

ROOT = Path(__file__).parent.parent
# What a page says that its own blocks printed, and the one thing in it that differs from run to run.
PRINTED = re.compile(r"^<!-- printed -->\n```\w*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# Code that a page names: a file, or a function and the file that it is in.
FILE = re.compile(r"`(?P<file>[\w/]+/\w+\.py)`")
PLACE = re.compile(r"`(?P<name>[\w.]+)`\s+\((?:`[\w.]+` in\s)?`(?P<file>[\w/]+\.py)`\)")
RUN_ID = re.compile(r"\brun [0-9a-f]{16}\b")


def script(page: Path) -> str:
    """The blocks of a page that run, at the lines where they stand, so that a traceback names the right one."""
    lines: list[str] = []
    for block in blocks(page.read_text()):
        if block.runs:
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines)


def nameless(text: str) -> str:
    return RUN_ID.sub("run ID", text)


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_the_python_of_a_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    # in a folder of its own, so that what a page writes stays there
    code = tmp_path / f"{page.stem}.py"
    code.write_text(script(page))
    command = [sys.executable, "-W", "error", code]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    printed = nameless(run.stdout)
    for shown in PRINTED.finditer(page.read_text()):
        before, found, printed = printed.partition(nameless(shown["text"]))
        assert found, f"{page.name} shows\n{shown['text']}\nbut its blocks printed here\n{before}"


def test_a_page_whose_python_fails_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    assert script(page) == "\nx = 1\n\n\n\n\n\nassert x == 2"
    with pytest.raises(AssertionError, match="line 8"):
        test_the_python_of_a_page_runs_and_prints_what_it_shows(page, tmp_path)


def test_a_page_that_shows_what_was_not_printed_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\nprint(2)\n```\n\n<!-- printed -->\n```text\n2\n```\n")
    test_the_python_of_a_page_runs_and_prints_what_it_shows(page, tmp_path)
    page.write_text(page.read_text() + "\n<!-- printed -->\n```text\n1\n```\n")
    with pytest.raises(AssertionError, match=r"page.md shows\s+1"):
        test_the_python_of_a_page_runs_and_prints_what_it_shows(page, tmp_path)


def missing(text: str, root: Path) -> list[str]:
    """The files and functions that a page names and ``root`` does not have."""
    found = [
        file for file in FILE.findall(text) if not any((base / file).is_file() for base in (root, root / "agentkv"))
    ]
    for place in PLACE.finditer(text):
        source = root / "agentkv" / place["file"]
        name = place["name"].rpartition(".")[2]
        if source.is_file() and not re.search(rf"^\s*(async def|def|class) {name}\b", source.read_text(), re.MULTILINE):
            found.append(f"{place['name']} in {place['file']}")
    return found


def test_the_code_that_the_concepts_name_exists() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert len(PLACE.findall(text)) >= 15
    assert missing(text, ROOT) == []


def unmapped(text: str, root: Path) -> list[str]:
    """The modules that the map of a page leaves out, of folders whose files it names."""
    named: dict[str, list[str]] = {}
    for line in text.splitlines():
        if folder := re.match(r"\| \*\*`(\w+)/`\*\*", line):
            files = named.setdefault(folder[1], [])
        elif named and line.startswith("| `"):
            files += re.findall(r"`([\w*]+\.py)`", line.split("|")[1])
    return [
        f"{folder}/{module.name}"
        for folder, patterns in named.items()
        for module in sorted((root / folder).glob("[!_]*.py"))
        if patterns and not any(module.match(pattern) for pattern in patterns)
    ]


def test_the_map_of_the_concepts_has_every_module() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert unmapped(text, ROOT / "agentkv") == []
    assert unmapped(text.replace("`admission.py`, ", ""), ROOT / "agentkv") == ["kv/admission.py"]


def test_code_that_does_not_exist_is_seen() -> None:
    text = "`Run.gone` (`runtime/run.py`), `Run`\n(`runtime/run.py`), `reduce` (`runtime/gone.py`)"
    assert missing(text, ROOT) == ["runtime/gone.py", "Run.gone in runtime/run.py"]
