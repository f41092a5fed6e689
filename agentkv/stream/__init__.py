"""Text that arrives piece by piece, for the body of a streaming tool: of a subprocess, of an HTTP response."""

from agentkv.stream.http import http
from agentkv.stream.process import process

__all__ = ("http", "process")
