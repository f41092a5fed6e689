"""Recorded waits, faster and bounded."""

import math
from typing import Any

from attrs import field, frozen

from agentkv.errors import SetupError

__all__ = ("DelayScaling",)


def _at_least_nothing(_: object, attribute: Any, value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise SetupError(f"--delay-{attribute.name} {value:g} must be at least 0")


@frozen(kw_only=True)
class DelayScaling:
    """Seconds are multiplied by ``scale``, and none is more than ``cap`` then. Raises ``SetupError`` below 0."""

    scale: float = field(default=1.0, validator=_at_least_nothing)
    cap: float | None = field(default=None, validator=_at_least_nothing)

    def seconds(self, recorded: float) -> float:
        """How long a recorded wait is now."""
        return self.bounded(self.scale * recorded)

    def bounded(self, seconds: float) -> float:
        """The seconds, or ``cap``."""
        return seconds if self.cap is None else min(seconds, self.cap)

    @property
    def factor(self) -> str:
        """The scale for people, behind the name of what is scaled; empty where nothing is."""
        return "" if self.scale == 1 else f" × {self.scale:g}"

    @property
    def bound(self) -> str:
        """The cap for people, at the end of a list; empty where there is none."""
        return "" if self.cap is None else f", none above {self.cap:g} s"
