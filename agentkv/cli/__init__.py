"""The command line: ``agentkv run | graph | doctor | bench | capacity``."""

from agentkv.cli.main import main

__all__ = ("main",)
