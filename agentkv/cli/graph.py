"""``agentkv graph``: the declaration as a drawing."""

import argparse

from agentkv.cli.load import load
from agentkv.graph import mermaid
from agentkv.runtime.runtime import compiled

__all__ = ("command",)


def command(options: argparse.Namespace) -> int:
    """Print Mermaid text."""
    print(mermaid(compiled(load(options.target).value)))
    return 0
