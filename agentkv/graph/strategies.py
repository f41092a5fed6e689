"""How the results of branches become one: the strategies of a join."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from attrs import frozen

from agentkv.errors import NotSupported
from agentkv.graph.agent import Agent

__all__ = ("Strategy", "all_of", "first", "summary", "winner")

_NOT_BUILT = "joins are not built yet; run the branches one after another as plan nodes"


@frozen
class Strategy:
    """A join's strategy; made by ``winner``, ``first``, ``all_of`` and ``summary``."""

    name: str


def winner(*, choose: Callable[[Sequence[str]], int] | None = None, judge: Agent[Any, Any] | None = None) -> Strategy:
    """One branch becomes the main chain, chosen by a function or by another agent. Raises ``NotSupported``."""
    raise NotSupported(f"winner(): {_NOT_BUILT}")


def first() -> Strategy:
    """The branch that finishes first becomes the main chain. Raises ``NotSupported``."""
    raise NotSupported(f"first(): {_NOT_BUILT}")


def all_of(
    *, at_least: int | None = None, timeout: float | None = None, on_error: Literal["raise", "collect"] = "raise"
) -> Strategy:
    """The branches' outputs enter the main chain in declared order. Raises ``NotSupported``."""
    raise NotSupported(f"all_of(): {_NOT_BUILT}")


def summary(agent: Agent[Any, Any]) -> Strategy:
    """``agent`` condenses the branches' outputs into one. Raises ``NotSupported``."""
    raise NotSupported(f"summary(): {_NOT_BUILT}")
