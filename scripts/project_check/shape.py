"""Short files and functions, finished bodies, and nothing that runs what it reads."""

import ast
import re
from collections.abc import Iterable, Iterator

from project_check.source import Function, Module, dotted, functions

__all__ = ("check", "is_declaration", "statements")

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
FORBIDDEN_IMPORTS = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve"})
FORBIDDEN_CALLS = frozenset({"eval", "exec"})
DECLARING_DECORATORS = frozenset({"overload", "abstractmethod"})


def check(modules: Iterable[Module]) -> Iterator[str]:
    """Say which modules are too long, unfinished, or use pickle, eval or exec."""
    for module in modules:
        yield from _lengths(module)
        for number, line in enumerate(module.text.splitlines(), 1):
            if found := UNFINISHED.search(line):
                yield f"{module.path}:{number}: {found.group()} in finished code"
        yield from _unfinished_bodies(module)
        yield from _forbidden(module)


def _lengths(module: Module) -> Iterator[str]:
    if (length := len(module.text.splitlines())) > MAX_FILE_LINES:
        yield f"{module.path}: {length} lines; split it ({MAX_FILE_LINES} at most)"
    for function, _ in functions(module.tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield f"{module.path}:{function.lineno}: {function.name} has {length} lines ({MAX_FUNCTION_LINES} at most)"


def _unfinished_bodies(module: Module) -> Iterator[str]:
    for function, owner in functions(module.tree):
        body = statements(function)
        if body and all(_is_nothing(node) for node in body) and not is_declaration(function, owner):
            where = f"{module.path}:{function.lineno}"
            yield f"{where}: {function.name} has no body; a docstring alone says that nothing is due"


def _is_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def statements(function: Function) -> list[ast.stmt]:
    """The body of a function without its docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def is_declaration(function: Function, owner: ast.ClassDef | None) -> bool:
    """Whether a function only declares a signature: in a Protocol, an overload or an abstract method."""
    if owner is not None and any(dotted(base).rpartition(".")[2] == "Protocol" for base in owner.bases):
        return True
    return any(dotted(mark).rpartition(".")[2] in DECLARING_DECORATORS for mark in function.decorator_list)


def _forbidden(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names) if found := FORBIDDEN_IMPORTS & {alias.name for alias in names}:
                yield f"{module.path}:{node.lineno}: imports {', '.join(sorted(found))}"
            case ast.ImportFrom(module=name) if name in FORBIDDEN_IMPORTS:
                yield f"{module.path}:{node.lineno}: imports {name}"
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield f"{module.path}:{node.lineno}: calls {name}"
