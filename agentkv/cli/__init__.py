"""The command line: ``agentkv run | graph | doctor | bench``."""

from agentkv.cli.main import main

__all__ = ("main",)
