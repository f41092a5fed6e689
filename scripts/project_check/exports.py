"""Every public module says what it offers, in a tuple ``__all__`` of names that it has."""

import ast
from collections.abc import Iterable, Iterator

from project_check.source import Module

__all__ = ("check",)


def check(modules: Iterable[Module]) -> Iterator[str]:
    """Say which public modules lack ``__all__``, or name in it what they do not define."""
    for module in modules:
        if _is_public(module):
            for problem in _problems(module.tree):
                yield f"{module.path}: {problem}"


def _is_public(module: Module) -> bool:
    last = module.name.rpartition(".")[2]
    only_docstring = all(isinstance(node, ast.Expr) for node in module.tree.body)
    return not last.startswith("_") and not only_docstring


def _problems(tree: ast.Module) -> Iterator[str]:
    value = _value_of_all(tree)
    if value is None:
        yield "no __all__"
        return
    if not isinstance(value, ast.Tuple):
        yield "__all__ is not a tuple"
        return
    defined = set(_top_level_names(tree.body))
    for element in value.elts:
        if not isinstance(element, ast.Constant):
            yield "__all__ holds something other than literal names"
        elif element.value not in defined:
            yield f"__all__ names {element.value!r}, which the module does not define"


def _value_of_all(tree: ast.Module) -> ast.expr | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return value
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=value):
                return value
    return None


def _top_level_names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                yield from _top_level_names([*inner, *other])
