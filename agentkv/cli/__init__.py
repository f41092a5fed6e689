"""The command line: ``agentkv run | graph | doctor``."""

from agentkv.cli.main import main

__all__ = ("main",)
