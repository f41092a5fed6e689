"""Imports go one way, and heavy packages stay out of the core."""

import ast
import sys
from collections.abc import Iterable, Iterator

from project_check.source import Module

__all__ = ("check",)

# Lowest first. Parts of one row do not import each other.
ORDER = (
    ("errors",),
    ("bounds", "common_prefix", "counted", "raised"),
    ("config",),
    ("tools", "kv", "stream"),
    ("chain",),
    ("graph", "trace"),
    ("follow",),
    ("engines.base",),
    ("plugin",),
    ("engines", "store"),
    ("report", "testing"),
    ("runtime",),
    ("bench",),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, row in enumerate(ORDER) for part in row}
FACADE = ""
FACADE_USERS = frozenset({"bench", "cli", "__main__"})
# All up to the runtime but the engines, and what runs inside of one.
CORE = frozenset(part for row in ORDER[: RANK["runtime"] + 1] for part in row) - {"engines", "plugin"}
HEAVY = frozenset({"torch", "vllm", "transformers"})
PLUGIN_OWN = frozenset({"errors", "kv", "plugin"})
# Triton comes with torch wherever there is a GPU for it.
PLUGIN_FOREIGN = frozenset({"agentkv", "attrs", "torch", "triton", "typing_extensions", "vllm"})


def check(modules: Iterable[Module]) -> Iterator[str]:
    """Say which imports go up or sideways, or bring in a package that does not belong there."""
    modules = list(modules)
    names = {module.name for module in modules}
    for module in modules:
        part = _part(module.name)
        if part != FACADE and part not in RANK:
            yield f"{module.path}: agentkv.{part} has no place in the order of layers (scripts/project_check/layers.py)"
            continue
        for line, target in _imports(module, names):
            if problem := _problem(part, target):
                yield f"{module.path}:{line}: {problem}"


def _part(name: str) -> str:
    """The layer of a module of agentkv: its first name, or ``engines.base``, which has a layer of its own."""
    inner = name.partition(".")[2]
    return inner if inner == "engines.base" else inner.partition(".")[0]


def _imports(module: Module, names: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in names else base


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + module.is_package]
    return ".".join((*kept, *([node.module] if node.module else [])))


def _problem(part: str, target: str) -> str | None:
    root = target.partition(".")[0]
    if part == "plugin" and root not in PLUGIN_FOREIGN and root not in sys.stdlib_module_names:
        return (
            f"the plugin imports {target}; it may import {', '.join(sorted(PLUGIN_FOREIGN))} and the standard library"
        )
    if root != "agentkv":
        return f"the core imports {root}" if part in CORE and root in HEAVY else None
    return _order_problem(part, _part(target))


def _order_problem(part: str, other: str) -> str | None:
    if part in (other, FACADE):
        return None
    if other == FACADE:
        return (
            None
            if part in FACADE_USERS
            else f"{part} imports the package's own door; import the module that defines it"
        )
    if part == "plugin" and other not in PLUGIN_OWN:
        return f"the plugin imports agentkv.{other}; of agentkv it may import kv and errors"
    if other not in RANK or RANK[other] < RANK[part]:
        return None
    return f"{part} imports agentkv.{other}, which is not below it"
