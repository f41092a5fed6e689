"""A parsed module, and what several rules ask of one."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ("Function", "Module", "dotted", "functions", "load", "parse")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A module by its dotted name (a package by its own), with its text and syntax tree."""

    name: str
    path: str
    is_package: bool
    text: str
    tree: ast.Module


def parse(name: str, text: str, *, path: str = "", is_package: bool = False) -> Module:
    """Parse ``text`` as the module ``name``."""
    return Module(name, path or name, is_package, text, ast.parse(text))


def load(folder: Path, name: str) -> list[Module]:
    """Every module below ``folder``, which is the package ``name``."""
    return [_load_one(path, folder, name) for path in sorted(folder.rglob("*.py"))]


def _load_one(path: Path, folder: Path, name: str) -> Module:
    parts = path.relative_to(folder).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    dotted_name = ".".join((name, *(parts[:-1] if is_package else parts)))
    return parse(dotted_name, path.read_text(), path=str(path.relative_to(folder.parent)), is_package=is_package)


def functions(tree: ast.AST, owner: ast.ClassDef | None = None) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Every function of a module with the class it is a method of, nested functions included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node, owner
            yield from functions(node)
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, node)
        else:
            yield from functions(node, owner)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` for a name or an attribute, also under a call or a subscript; else an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return dotted(inner)
        case _:
            return ""
