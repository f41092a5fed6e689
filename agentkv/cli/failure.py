"""How an error reaches a terminal."""

import sys

from agentkv.errors import AgentKVError, SetupError

__all__ = ("tell",)


def tell(error: AgentKVError) -> int:
    """Write the error as one line to standard error. Returns the exit status that goes with it."""
    # Set-up errors say what to do about a declaration; of others their class says what has happened.
    kind = "" if isinstance(error, SetupError) else f"{type(error).__name__}: "
    print(f"agentkv: {kind}{error}", file=sys.stderr)
    return 2 if isinstance(error, SetupError) else 1
