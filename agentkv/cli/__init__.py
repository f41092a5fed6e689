"""The command line: ``agentkv run | graph | doctor | bench | capacity | advise``."""

from agentkv.cli.main import main

__all__ = ("main",)
