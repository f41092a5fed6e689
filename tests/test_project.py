"""The project's own rules hold, each rule is seen to fail, and importing agentkv is quick and light."""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from project_check import documents, exports, layers, parameters, shape, test_names
from project_check.source import Module, load, parse

ROOT = Path(__file__).parent.parent
MODULES = load(ROOT / "agentkv", "agentkv")
IMPORT_SECONDS = 0.5
# This module needs vLLM to be imported; the check by syntax tree covers it.
NEEDS_VLLM = ("agentkv.plugin", "agentkv.engines.vllm")


def one(text: str, name: str = "agentkv.tools.example") -> list[Module]:
    return [parse(name, text)]


@pytest.mark.parametrize("rule", [layers, exports, shape, parameters], ids=lambda rule: rule.__name__)
def test_the_code_keeps_the_rule(rule: object) -> None:
    assert list(rule.check(MODULES)) == []  # type: ignore[attr-defined]


def test_files_and_documents_keep_the_rules() -> None:
    assert list(documents.check(ROOT)) == []


def test_tests_have_the_same_names_in_every_process() -> None:
    assert list(test_names.check(load(ROOT / "tests", "tests"))) == []


def test_the_plugin_that_make_bench_asks_for_comes_with_the_test_tools() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "pytest -q benchmarks --benchmark-only" in (ROOT / "benchmarks" / "reduced.sh").read_text()
    assert any(each.startswith("pytest-benchmark") for each in extras["test"])


@pytest.mark.parametrize("module", [m.name for m in MODULES if not m.name.startswith(NEEDS_VLLM)])
def test_what_a_module_offers_exists(module: str) -> None:
    if not module.rpartition(".")[2].startswith("_"):
        loaded = importlib.import_module(module)
        assert [name for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)] == []


def test_importing_is_quick_and_brings_nothing_heavy() -> None:
    program = (
        "import json, sys, time; start = time.process_time(); import agentkv; took = time.process_time() - start;"
        "print(json.dumps([took, [name for name in ('torch', 'vllm', 'transformers') if name in sys.modules]]))"
    )
    # Others on the same core take its caches: one run in which they did not is enough.
    for _ in range(10):
        took, heavy = json.loads(subprocess.check_output([sys.executable, "-c", program], cwd=ROOT))
        assert heavy == []
        if took < IMPORT_SECONDS:
            return
    pytest.fail(f"importing took {took:.2f} s of the processor's time, ten times in a row over {IMPORT_SECONDS}")


def test_what_is_for_tests_is_imported_when_it_is_asked_for() -> None:
    program = (
        "import sys, agentkv; early = ('agentkv.testing', 'agentkv.engines.sim');"
        "print([name for name in sys.modules if name.startswith(early)],"
        "agentkv.testing.Script.__name__, hasattr(agentkv, 'nothing'))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], cwd=ROOT).decode() == "[] Script False\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("agentkv.kv.x", "import agentkv.runtime", "kv imports agentkv.runtime, which is not below it"),
        ("agentkv.kv.x", "from agentkv import tools", "kv imports agentkv.tools"),
        ("agentkv.tools.x", "def f():\n    from agentkv.chain import Chain", "tools imports agentkv.chain"),
        ("agentkv.tools.x", "from ..chain import Chain", "tools imports agentkv.chain"),
        ("agentkv.graph.x", "from agentkv.engines.base import Engine", "graph imports agentkv.engines.base"),
        ("agentkv.engines.base", "from agentkv.store import Store", "engines.base imports agentkv.store"),
        ("agentkv.runtime.x", "import torch.nn", "the core imports torch"),
        ("agentkv.chain.x", "def f():\n    import transformers", "the core imports transformers"),
        ("agentkv.graph.x", "from vllm import LLM", "the core imports vllm"),
        ("agentkv.plugin.x", "from agentkv.config import Limits", "the plugin imports agentkv.config"),
        ("agentkv.plugin.x", "import pydantic", "the plugin imports pydantic"),
        ("agentkv.runtime.x", "from agentkv import Agent", "runtime imports the package's own door"),
        ("agentkv.novel", "", "agentkv.novel has no place"),
    ],
)
def test_an_import_that_goes_the_wrong_way_is_found(name: str, text: str, problem: str) -> None:
    known = [parse(f"agentkv.{part}", "") for part in ("tools", "chain", "kv", "engines.base")]
    assert problem in "\n".join(layers.check([parse(name, text), *known]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("agentkv.runtime.x", "from agentkv.graph import Agent\nfrom agentkv.engines.base import Engine\nimport json"),
        ("agentkv.engines.vllm", "import torch\nimport vllm\nfrom agentkv.engines.base import Engine"),
        ("agentkv.plugin.x", "import logging\nimport attrs\nimport vllm\nfrom agentkv.kv import lease"),
        ("agentkv", "from agentkv.cli import main"),
        ("agentkv.cli", "import agentkv"),
    ],
)
def test_an_import_that_goes_down_is_fine(name: str, text: str) -> None:
    assert list(layers.check(one(text, name))) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "no __all__"),
        ("__all__ = ['x']\nx = 1", "not a tuple"),
        ("__all__ = ('y',)\nx = 1", "names 'y'"),
        ("__all__ = (*names,)", "other than literal names"),
    ],
)
def test_a_module_that_does_not_say_what_it_offers_is_found(text: str, problem: str) -> None:
    assert problem in "\n".join(exports.check(one(text)))


@pytest.mark.parametrize("text", ['"""Only a docstring."""', "__all__ = ('x', 'f')\nx = 1\nasync def f(): return x"])
def test_a_module_that_says_what_it_offers_is_fine(text: str) -> None:
    assert list(exports.check(one(text))) == []


def test_a_private_module_needs_no_all() -> None:
    assert list(exports.check(one("x = 1", "agentkv.tools._private"))) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# " + "TO" + "DO: later", "in finished code"),
        ("raise Not" + "ImplementedError", "in finished code"),
        ("def f(): pass", "f has no body"),
        ("class C:\n    async def f(self):\n        '''Doc.'''\n        ...", "f has no body"),
        ("def outer():\n    def inner(): ...\n    return inner", "inner has no body"),
        ("import pickle", "imports pickle"),
        ("from pickle import loads", "imports pickle"),
        ("ev" + "al('1')", "calls eval"),
        ("ex" + "ec('1')", "calls exec"),
        ("x = 1\n" * 301, "301 lines"),
        ("def f():\n" + "    x = 1\n" * 50, "f has 51 lines"),
    ],
)
def test_unfinished_long_or_dangerous_code_is_found(text: str, problem: str) -> None:
    assert problem in "\n".join(shape.check(one(text)))


@pytest.mark.parametrize(
    "text",
    [
        "class C(Protocol):\n    def f(self): ...",
        "class C(typing.Protocol[T]):\n    def f(self): ...",
        "@overload\ndef f(): ...",
        "class C:\n    @abc.abstractmethod\n    def f(self): ...",
        "def f():\n    '''Nothing is due.'''",
        "model.ev" + "al()",
    ],
)
def test_a_declaration_needs_no_body(text: str) -> None:
    assert list(shape.check(one(text))) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def f(a, b): return a", "f accepts 'b' and ignores it"),
        ("class C:\n    def __init__(self, *, mode): self.x = 1", "__init__ accepts 'mode'"),
        ("async def f(*args, **options): return args", "accepts 'options'"),
        ("def f(a): a = 1", "accepts 'a'"),
        ("class C(ABC):\n    def __init__(self, a): self.x = 1", "accepts 'a'"),
    ],
)
def test_a_parameter_that_nothing_reads_is_found(text: str, problem: str) -> None:
    assert problem in "\n".join(parameters.check(one(text)))


@pytest.mark.parametrize(
    "text",
    [
        "def f(a): return lambda: a",
        "def f(_a): return 1",
        "def _f(a): return 1",
        "def f(a):\n    '''Doc.'''\n    raise NotSupported('f')",
        "class C(Base):\n    @override\n    def f(self, a): return 1",
        "class C(Protocol):\n    def f(self, a): ...",
        "class C(ABC):\n    def f(self, a): return 1",
        "class C:\n    def __exit__(self, *error): return None",
    ],
)
def test_a_parameter_that_is_read_or_refused_is_fine(text: str) -> None:
    assert list(parameters.check(one(text))) == []


def test_a_configuration_field_that_nothing_reads_is_found() -> None:
    config = "class Limits:\n    steps: int\n    tokens: int\n    later: int\n    def f(self): refuse(self, later=1)"
    reader = parse("agentkv.runtime.x", "print(limits.steps)")
    problems = list(parameters.check([parse("agentkv.config", config), reader]))
    assert [problem.partition(": ")[2] for problem in problems] == ["Limits.tokens is accepted and nothing reads it"]


@pytest.mark.parametrize(
    "text",
    ["cd /" + "work/main", "see /" + "home/me/x", "pypi" + ".org", "/" + "tmp/x", "download." + "pytorch" + ".org"],
)
def test_a_file_that_speaks_of_one_machine_is_found(text: str) -> None:
    assert list(documents.check_text("x.md", f"fine\n{text}\n")) != []


@pytest.mark.parametrize("text", ["network/main", "docs/work/main", "https://keepachangelog.com", "homework/x"])
def test_a_file_that_speaks_of_the_project_is_fine(text: str) -> None:
    assert list(documents.check_text("x.md", text)) == []


def test_a_block_that_is_no_python_is_found_at_its_line() -> None:
    (block,) = documents.blocks("# Page\n\n```python\nx = 1\ny = (\n```\n")
    assert list(documents.check_block("x.md", block)) == ["x.md:5: this is not Python: '(' was never closed"]


def test_blocks_are_read_with_their_marks() -> None:
    text = (
        "```python\nawait f()\n```\n\n<!-- norun: starts an engine -->\n```python title='x'\ny\n```\n"
        "<!-- norun -->\n```python\nz\n```\n"
        "- item\n\n    ```python\n    if a:\n\n        b\n    ```\n```console\n$ x\n```\n"
    )
    found = documents.blocks(text)
    assert [block.code for block in found] == ["await f()\n", "y\n", "z\n", "if a:\n\n    b\n"]
    assert [block.runs for block in found] == [True, False, False, True]
    assert [problem for block in found for problem in documents.check_block("x.md", block)] == [
        "x.md:11: say why this block is not run: <!-- norun: why -->"
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ('[("a", gzip.compress(b"x"))]', "what gzip.compress() returns"),
        ("[1, time.time()]", "what time.time() returns"),
        ("[str(uuid4())]", "what uuid4() returns"),
        ("argvalues=[random.random()]", "what random.random() returns"),
        ("{'a', 'b'}", "the order of a set"),
        ("list(set(NAMES))", "the order of a set"),
    ],
)
def test_a_test_that_is_named_by_what_changes_is_found(values: str, problem: str) -> None:
    text = f"@pytest.mark.parametrize('a', {values})\ndef test(a): pass"
    assert problem in "\n".join(test_names.check(one(text)))


@pytest.mark.parametrize("values", ["[b'x', f(1)]", "sorted({'a', 'b'})", "[{'a': 1}, {1, 2}]"])
def test_a_test_that_is_named_by_what_stays_is_fine(values: str) -> None:
    text = f"@pytest.mark.parametrize('a', {values})\ndef test(a): gzip.compress(b'x')"
    assert list(test_names.check(one(text))) == []
