"""The user's functions about branches: listing them at run time, and choosing one."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from agentkv.errors import NodeError
from agentkv.graph import Branches, Join, Winner, label_branches
from agentkv.raised import guarded
from agentkv.runtime.events import BranchChosen, BranchesListed
from agentkv.runtime.program import Program
from agentkv.runtime.state import Choose, ListBranches
from agentkv.tools import clean_text

__all__ = ("choose", "list_branches")

Now = Callable[[], float]


async def list_branches(program: Program, command: ListBranches, now: Now) -> BranchesListed:
    """Have ``over`` and ``prompt`` of a fork or spawn say what its branches are. Raises ``NodeError``."""
    node = program.graph.nodes[command.node]
    assert isinstance(node, Branches)
    assert node.over is not None
    assert node.prompt is not None
    given = command.text if command.speaker is None else _answer(program, command.speaker, command.text)
    with guarded(f"node {node.name!r}: its over= function", NodeError):
        listed: object = node.over(given)
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Iterable):
        kind = type(listed).__name__
        raise NodeError(f"node {node.name!r}: its over= function returned a {kind}; return a list of items")
    with guarded(f"node {node.name!r}: what its over= function returned", NodeError):
        # One above the limit ends the run already: there may be no end to them.
        items = list(islice(listed, node.limit + 1))
    with guarded(f"node {node.name!r}: its prompt= function", NodeError):
        texts: list[object] = [node.prompt(item) for item in items]
    labels = label_branches(items, named=node.kind == "spawn")
    pairs = tuple((clean_text(label), _text(node, text)) for label, text in zip(labels, texts, strict=True))
    return BranchesListed(node=node.name, branches=pairs, at=now(), branch=command.branch)


def _text(node: Branches, made: object) -> str:
    if not isinstance(made, str) or not made.strip():
        raise NodeError(f"node {node.name!r}: its prompt= function returned {made!r}, which is no text")
    return clean_text(made)


def _answer(program: Program, speaker: str, text: str) -> object:
    answer: object = program.agents[speaker].agent.validate_output(text)
    return answer


async def choose(program: Program, command: Choose, now: Now) -> BranchChosen:
    """Have the function of ``winner(choose=...)`` name a branch. Raises ``NodeError``."""
    join = program.graph.nodes[command.node]
    assert isinstance(join, Join)
    assert isinstance(join.strategy, Winner)
    assert join.strategy.choose is not None
    outputs = dict(command.outputs)
    with guarded(f"join {join.name!r}: its choose= function", NodeError):
        label: object = join.strategy.choose(outputs)
    if not isinstance(label, str) or label not in outputs:
        raise NodeError(f"join {join.name!r}: its choose= function returned {label!r}; there are {', '.join(outputs)}")
    return BranchChosen(node=join.name, label=label, at=now(), branch=command.branch)
