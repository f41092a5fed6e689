"""What a run has used up of its limits."""

from typing import NamedTuple

__all__ = ("NOTHING", "Spent")


class Spent(NamedTuple):
    """What counts towards ``Limits``: generations, tool calls, generated tokens."""

    steps: int = 0
    calls: int = 0
    tokens: int = 0

    def plus(self, other: "Spent") -> "Spent":
        """The sum of both."""
        return Spent(self.steps + other.steps, self.calls + other.calls, self.tokens + other.tokens)

    def minus(self, other: "Spent") -> "Spent":
        """What is left of it without ``other``."""
        return Spent(self.steps - other.steps, self.calls - other.calls, self.tokens - other.tokens)


NOTHING = Spent()
