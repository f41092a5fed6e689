"""Tests have the same names in every process: those that share the tests compare what they have collected.

The names of parameters are made of their values, so these must not follow from the clock, from chance, or from the
order of a set of texts, which is another in each process.
"""

import ast
from collections.abc import Iterable, Iterator

from project_check.source import Module, dotted

__all__ = ("check",)

#: Modules whose functions return something else in each process, or second; gzip writes the time.
CHANGING = ("gzip.", "random.", "secrets.", "tempfile.", "time.", "uuid.")
#: Other functions that do, however they are imported.
ENDS = ("getpid", "monotonic", "now", "perf_counter", "today", "token_hex", "urandom", "utcnow", "uuid4")


def check(modules: Iterable[Module]) -> Iterator[str]:
    """Say which parameters of tests are made of something that changes."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and dotted(node.func).endswith("parametrize"):
                for line, what in _changing(node):
                    yield f"{module.path}:{line}: a test is named by {what}; make that within the test"


def _changing(node: ast.Call) -> Iterator[tuple[int, str]]:
    values = node.args[1:] + [each.value for each in node.keywords if each.arg == "argvalues"]
    for value in values:
        if _is_set(value):
            yield value.lineno, "the order of a set"
        for inner in ast.walk(value):
            if isinstance(inner, ast.Call) and _changes(name := dotted(inner.func)):
                yield inner.lineno, f"what {name}() returns"


def _changes(name: str) -> bool:
    return name.startswith(CHANGING) or name.rpartition(".")[2] in ENDS


def _is_set(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner]):
            return _is_set(inner)
        case ast.Call(func=ast.Name(id="set" | "frozenset")) | ast.Set() | ast.SetComp():
            return True
        case _:
            return False
