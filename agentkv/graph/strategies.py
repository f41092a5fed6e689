"""How the results of branches become one: the strategies of a join, as values."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, overload

from attrs import field, frozen

from agentkv.bounds import is_number, is_whole
from agentkv.errors import GraphError
from agentkv.graph.agent import Agent
from agentkv.graph.node import Replan

__all__ = (
    "AllOf",
    "Choose",
    "First",
    "JoinOrder",
    "Judge",
    "OnError",
    "Strategy",
    "Summary",
    "Winner",
    "all_of",
    "first",
    "summary",
    "winner",
)

OnError = Literal["fail", "drop", "collect"]
JoinOrder = Literal["declared", "arrival"]
Judge: TypeAlias = Agent[Any, Any] | Replan[Any]
Choose: TypeAlias = Callable[[Mapping[str, str]], str]


@frozen
class Winner:
    """One branch becomes the main chain: the one that ``judge`` or ``choose`` names. Made by ``winner``."""

    judge: Judge | None
    choose: Choose | None = field(repr=False)


@frozen
class First:
    """The branch that ends first becomes the main chain. Made by ``first``."""


@frozen(kw_only=True)
class AllOf:
    """The branches' outputs enter the main chain. Made by ``all_of``."""

    at_least: int | None
    timeout: float | None
    on_error: OnError | None
    order: JoinOrder


@frozen
class Summary:
    """What ``agent`` makes of the branches' outputs enters the main chain. Made by ``summary``."""

    agent: Agent[Any, Any]


Strategy: TypeAlias = Winner | First | AllOf | Summary


@overload
def winner(*, judge: Judge) -> Winner: ...
@overload
def winner(*, choose: Choose) -> Winner: ...
def winner(*, judge: Judge | None = None, choose: Choose | None = None) -> Winner:
    """The branch that ``judge`` or ``choose`` names becomes the main chain; nothing of it is computed again.

    ``judge`` is an agent, which reads the conversation and the outputs and writes a label, or a replan node of the
    graph whose labels are those of the fork and which no path leads to. ``choose`` gets the outputs by label, in
    declared order, and returns a label. Branches that failed are no candidates; a single one needs no judge.
    Raises ``GraphError`` unless exactly one of the two is given.
    """
    if (judge is None) == (choose is None):
        raise GraphError("winner() takes a judge or a choose function, and not both")
    if judge is not None and not isinstance(judge, Agent | Replan):
        raise GraphError(f"winner(judge={judge!r}): a judge is an Agent or a replan node with the fork's labels")
    if choose is not None and not callable(choose):
        raise GraphError(f"winner(choose={choose!r}) must be a function from outputs by label to a label")
    return Winner(judge, choose)


def first() -> First:
    """The branch that has its answer first becomes the main chain; the others are cancelled."""
    return First()


def all_of(
    *,
    at_least: int | None = None,
    timeout: float | None = None,
    on_error: OnError | None = None,
    order: JoinOrder = "declared",
) -> AllOf:
    """The branches' outputs enter the main chain as one user message, each behind its label.

    ``at_least`` outputs suffice (None: all that there are). Without ``timeout`` the join goes on as soon as it has
    them; with it, it waits up to so many seconds for the others, and then goes on if it has ``at_least``. Branches
    that are late are cancelled. ``on_error`` replaces that of the fork: ``"fail"`` ends the run, ``"drop"`` leaves
    the branch out, ``"collect"`` lets its error stand for its output. ``order`` is that of declaration, or that of
    ``"arrival"``. Raises ``GraphError`` naming the option that is out of its bounds.
    """
    problems = {
        f"at_least={at_least!r} must be at least 1, or None for all": at_least is not None
        and not is_whole(at_least, 1),
        f"timeout={timeout!r} must be more than 0 seconds, or None": timeout is not None
        and not (is_number(timeout) and timeout > 0),
        f"on_error={on_error!r} must be 'fail', 'drop' or 'collect'": on_error not in (None, "fail", "drop", "collect"),
        f"order={order!r} must be 'declared' or 'arrival'": order not in ("declared", "arrival"),
    }
    if problem := next((text for text, wrong in problems.items() if wrong), None):
        raise GraphError(f"all_of(): {problem}")
    return AllOf(at_least=at_least, timeout=timeout, on_error=on_error, order=order)


def summary(agent: Agent[Any, Any]) -> Summary:
    """``agent`` reads the conversation and the outputs; its answer enters the main chain as a user message.

    Raises ``GraphError`` for what is no agent.
    """
    if not isinstance(agent, Agent):
        raise GraphError(f"summary({agent!r}): give it an Agent")
    return Summary(agent)
