"""Drawing a graph as a Mermaid flowchart."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from agentkv.graph.branches import Branches
from agentkv.graph.node import END, START, Node
from agentkv.graph.wiring import Move, Wiring

__all__ = ("Wired", "mermaid")

SHAPES: Mapping[str, tuple[str, str]] = {
    "plan": ("[", "]"),
    "replan": ("{{", "}}"),
    "tool": ("[[", "]]"),
    "observe": ("[/", "/]"),
    "fork": ("[/", "\\]"),
    "spawn": ("[/", "\\]"),
    "join": ("[\\", "/]"),
}


class Wired(Protocol):
    """A graph, declared or compiled."""

    @property
    def wiring(self) -> Wiring: ...


def mermaid(graph: Wired, overlay: Mapping[str, str] | None = None) -> str:
    """A flowchart; ``overlay`` adds a line of text to nodes by name, such as what a run did there."""
    wiring, notes = graph.wiring, overlay or {}
    ids = {name: f"n{index}" for index, name in enumerate(wiring.nodes)} | {START: "start", END: "finish"}
    lines = ["flowchart TD", *(f"    {line}" for line in _lines(wiring, ids, notes))]
    return "\n".join(lines)


def _lines(wiring: Wiring, ids: Mapping[str, str], notes: Mapping[str, str]) -> Iterator[str]:
    yield 'start(("START"))'
    yield from (f"{ids[node.name]}{_box(node, notes.get(node.name))}" for node in wiring.nodes.values())
    yield 'finish(("END"))'
    for name in (START.value, *wiring.nodes):
        for move in wiring.moves(name):
            for arrow in _arrows(wiring, name, move):
                yield f"{ids[name]} {arrow} {ids[move.target]}"
    yield from (f"{ids[judge]} -.->|judges| {ids[join]}" for judge, join in wiring.judges.items())


def _box(node: Node, note: str | None) -> str:
    opening, closing = SHAPES[node.kind]
    text = _escaped(node.name) if note is None else f"{_escaped(node.name)}<br/>{_escaped(note)}"
    return f'{opening}"{text}"{closing}'


def _arrows(wiring: Wiring, name: str, move: Move) -> list[str]:
    node = wiring.nodes.get(name)
    if not isinstance(node, Branches):
        return [_arrow(move)]
    labels = [label for label, _ in node.declared] or [f"up to {node.limit}"]
    return [_arrow(Move(move.target, label)) for label in labels]


def _arrow(move: Move) -> str:
    label = move.label or ("calls" if move.calls else None)
    return "-->" if label is None else f'-->|"{_escaped(label)}"|'


def _escaped(text: str) -> str:
    # Mermaid reads entity codes in quoted text; the hash first, since the others bring one in
    for character, code in (("#", "#35;"), ("&", "#38;"), ('"', "#34;"), ("<", "#60;"), (">", "#62;"), ("`", "#96;")):
        text = text.replace(character, code)
    return " ".join(text.split())
