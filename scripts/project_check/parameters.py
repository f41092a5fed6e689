"""Nothing is accepted and ignored: every parameter and every configuration field is read somewhere."""

import ast
from collections.abc import Iterable, Iterator

from project_check.shape import is_declaration, statements
from project_check.source import Function, Module, dotted, functions

__all__ = ("check",)

CONFIGURATION = "agentkv.config"
CHECKED_DUNDERS = frozenset({"__init__", "__call__"})


def check(modules: Iterable[Module]) -> Iterator[str]:
    """Say which parameters of public functions, and which fields of configuration classes, nothing reads."""
    modules = list(modules)
    for module in modules:
        for function, owner in functions(module.tree):
            if _must_read_all(function, owner):
                for name in sorted(_parameters(function) - _loaded(function)):
                    yield f"{module.path}:{function.lineno}: {function.name} accepts {name!r} and ignores it"
    yield from _ignored_fields(modules)


def _must_read_all(function: Function, owner: ast.ClassDef | None) -> bool:
    if function.name.startswith("_") and function.name not in CHECKED_DUNDERS:
        return False
    overrides = any(dotted(mark).rpartition(".")[2] == "override" for mark in function.decorator_list)
    return not (overrides or _is_hook(function, owner) or is_declaration(function, owner) or _refuses(function))


def _is_hook(function: Function, owner: ast.ClassDef | None) -> bool:
    """Whether a method is an abstract class's default, whose parameters are there for those that override it."""
    bases = [] if owner is None else owner.bases
    return function.name not in CHECKED_DUNDERS and any(dotted(base).rpartition(".")[2] == "ABC" for base in bases)


def _refuses(function: Function) -> bool:
    """Whether all that a function does is to raise ``NotSupported``."""
    match statements(function):
        case [ast.Raise(exc=ast.expr() as raised)]:
            return dotted(raised).rpartition(".")[2] == "NotSupported"
    return False


def _parameters(function: Function) -> set[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = {argument.arg for argument in every if argument is not None}
    return {name for name in names - {"self", "cls"} if not name.startswith("_")}


def _loaded(function: Function) -> set[str]:
    return {
        node.id
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _ignored_fields(modules: list[Module]) -> Iterator[str]:
    configuration = next((module for module in modules if module.name == CONFIGURATION), None)
    if configuration is None:
        return
    read = {
        node.attr
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and module is not configuration
    }
    for owner in (node for node in configuration.tree.body if isinstance(node, ast.ClassDef)):
        refused = {keyword.arg for node in ast.walk(owner) if isinstance(node, ast.Call) for keyword in node.keywords}
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                if name not in read | refused:
                    yield f"{configuration.path}:{node.lineno}: {owner.name}.{name} is accepted and nothing reads it"
