"""Forks, spawns and joins: nodes whose work is done by branches, and what may be declared of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from agentkv.bounds import is_whole
from agentkv.config import Limits
from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.choice import list_tools
from agentkv.graph.node import Node
from agentkv.graph.strategies import AllOf, First, OnError, Strategy, Summary, Winner
from agentkv.tools import Tool

if TYPE_CHECKING:
    from agentkv.graph.declaration import Graph

__all__ = (
    "BRANCHES_AT_MOST",
    "Branches",
    "Declared",
    "Join",
    "check_label",
    "label_branches",
    "read_branches",
    "read_join",
)

# Branches of one fork whose list is made at run time, unless the fork says otherwise.
BRANCHES_AT_MOST = 16
LONGEST_LABEL = 80


@frozen(kw_only=True, eq=False)
class Branches(Node):
    """What ``fork`` and ``spawn`` return: branches that run side by side, the source of a join.

    ``declared`` holds their labels and texts (a fork's instructions, a spawn's prompts); it is empty where ``over``
    lists the items at run time, of which ``prompt`` makes the texts. ``of`` is the agent of the branches, None for
    the one before the fork; ``body`` the graph that each of them runs, None for that agent's loop.
    """

    declared: tuple[tuple[str, str], ...] = ()
    over: Callable[[Any], Sequence[Any]] | None = field(default=None, repr=False)
    prompt: Callable[[Any], str] | None = field(default=None, repr=False)
    limit: int = BRANCHES_AT_MOST
    of: Agent[Any, Any] | None = None
    body: "Graph[Any, Any] | None" = field(default=None, repr=False)
    limits: Limits | None = None
    on_error: OnError = "fail"

    @property
    def most(self) -> int:
        """How many branches there can be."""
        return len(self.declared) if self.over is None else self.limit


@frozen(kw_only=True, eq=False)
class Join(Node):
    """What ``join`` returns: where the branches of the node ``source`` come back, by ``strategy``."""

    source: str
    strategy: Strategy

    @property
    def adopts(self) -> bool:
        """Whether a branch becomes the main chain; if not, text of theirs enters it."""
        return isinstance(self.strategy, Winner | First)


@frozen(kw_only=True)
class Declared:
    """What ``fork`` and ``spawn`` were given for their branches; see ``Branches``."""

    branches: Mapping[str, str] | Sequence[Any] | None
    over: Callable[[Any], Sequence[Any]] | None
    prompt: Callable[[Any], str] | None
    limit: int | None


def read_branches(
    name: str,
    kind: Literal["fork", "spawn"],
    given: Declared,
    *,
    tools: Sequence[Tool[Any, ..., Any]] | None,
    limits: Limits | None,
    on_error: OnError,
    target: object,
    body: object,
) -> dict[str, Any]:
    """The fields of a fork or spawn node. Raises ``GraphError`` naming the node and the option at fault."""
    if on_error not in ("fail", "drop", "collect"):
        raise GraphError(f"node {name!r}: on_error={on_error!r} must be 'fail', 'drop' or 'collect'")
    if target is not None and not isinstance(target, Agent):
        raise GraphError(f"node {name!r}: {target!r} is not an Agent")
    if limits is not None and not isinstance(limits, Limits):
        raise GraphError(f"node {name!r}: limits={limits!r} must be akv.Limits(...), or None")
    if tools is not None and body is not None:
        raise GraphError(f"node {name!r}: tools= is for the agent's loop; narrow the tools in the nodes of body=")
    return {
        **_listed(name, kind, given),
        "of": target,
        "body": body,
        "tools": None if tools is None else list_tools(name, "tools", tools),
        "limits": limits,
        "on_error": on_error,
    }


def _listed(name: str, kind: Literal["fork", "spawn"], given: Declared) -> dict[str, Any]:
    if (given.branches is None) == (given.over is None):
        raise GraphError(f"node {name!r}: give its branches, or over= to list them at run time")
    check_function(name, "over", given.over)
    check_function(name, "prompt", given.prompt)
    if given.over is not None:
        if given.prompt is None:
            raise GraphError(f"node {name!r}: over= needs prompt=, which makes a text of each item")
        limit = BRANCHES_AT_MOST if given.limit is None else given.limit
        if not is_whole(limit, 1):
            raise GraphError(f"node {name!r}: limit={limit!r} must be at least 1")
        return {"over": given.over, "prompt": given.prompt, "limit": limit}
    declared = _declared(name, kind, given)
    if not declared:
        raise GraphError(f"node {name!r} has no branches; declare at least one")
    if given.limit is not None and len(declared) > given.limit:
        raise GraphError(f"node {name!r} has {len(declared)} branches, above its limit={given.limit!r}")
    return {"declared": declared}


def _declared(name: str, kind: Literal["fork", "spawn"], given: Declared) -> tuple[tuple[str, str], ...]:
    pairs: tuple[tuple[Any, Any], ...]
    if isinstance(given.branches, Mapping):
        pairs = tuple(given.branches.items())
    else:
        if isinstance(given.branches, str | bytes) or not isinstance(given.branches, Sequence):
            raise GraphError(f"node {name!r}: branches={given.branches!r} must be a mapping or a list of texts")
        items = list(given.branches)
        texts = [item if given.prompt is None else given.prompt(item) for item in items]
        pairs = tuple(zip(label_branches(items, named=kind == "spawn"), texts, strict=True))
    for label, text in pairs:
        check_label(f"node {name!r}", label)
        if not isinstance(text, str) or not text.strip():
            raise GraphError(f"node {name!r}: branch {label!r} has {text!r} for its text; say what it is to do")
    return pairs


def check_function(name: str, option: str, given: object) -> None:
    """Raise ``GraphError`` naming the node and the option for what is neither a function nor None."""
    if given is not None and not callable(given):
        raise GraphError(f"node {name!r}: {option}={given!r} must be a function, or None")


def check_label(where: str, label: object) -> None:
    """Raise ``GraphError``, which begins with ``where``, for a label that cannot be part of a place."""
    if not isinstance(label, str) or not _is_line(label):
        raise GraphError(
            f"{where}: label {label!r} must be a line of at most {LONGEST_LABEL} characters, without '/' and "
            "'>' (reports use these for places) and without space around it"
        )


def label_branches(items: Sequence[object], *, named: bool) -> list[str]:
    """Labels for ``items``: with ``named`` the items themselves, if they are short lines and differ; else numbers."""
    numbers = [str(number) for number, _ in enumerate(items, 1)]
    texts = [item for item in items if isinstance(item, str) and _is_line(item)]
    return texts if named and len(set(texts)) == len(items) else numbers


def _is_line(label: str) -> bool:
    fits = bool(label) and label == label.strip() and len(label) <= LONGEST_LABEL
    return fits and label.isprintable() and not {"/", ">"} & set(label)


def read_join(name: str, source: object, strategy: object) -> dict[str, Any]:
    """The fields of a join node. Raises ``GraphError`` naming the node and what is wrong with it."""
    if not isinstance(source, Branches):
        raise GraphError(f"join {name!r} has no source: {source!r} is not what fork() or spawn() returned")
    if not isinstance(strategy, Winner | First | AllOf | Summary):
        raise GraphError(f"join {name!r}: {strategy!r} is no strategy; use winner(), first(), all_of() or summary()")
    if source.kind == "spawn" and isinstance(strategy, Winner | First):
        raise GraphError(
            f"join {name!r}: the agents of {source.name!r} have no chain in common with the main one, so none of them "
            "can become it; use all_of() or summary(), or fork()"
        )
    if isinstance(strategy, AllOf) and strategy.at_least is not None and strategy.at_least > source.most:
        raise GraphError(f"join {name!r}: at_least={strategy.at_least} is more than {source.name!r} has branches")
    return {"source": source.name, "strategy": strategy}
