"""How figures are printed that stand in more than one table."""

from collections.abc import Mapping
from typing import Any

__all__ = ("after_tool", "makespan", "pair", "percent")


def pair(found: Mapping[str, float], digits: int = 0) -> str:
    """p50 and p95."""
    return " / ".join(f"{found[percent]:,.{digits}f}" for percent in ("p50", "p95"))


def after_tool(mode: Mapping[str, Any]) -> str:
    """TTFT after a tool in ms."""
    return pair(mode["ttft_after_tool_ms"])


def makespan(mode: Mapping[str, Any]) -> str:
    """The seconds until all agents were done."""
    return f"{mode['makespan_s']:.1f}"


def percent(share: float, sign: str = "") -> str:
    """Whole percents, with a plus sign in front for a ``sign`` of ``+``."""
    return f"{share:{sign}.0%}".replace("%", " %")
