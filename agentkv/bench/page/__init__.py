"""A result as one page that is read without a network, and its headline figure as a file."""

from agentkv.bench.page.document import page, require_plotting
from agentkv.bench.page.picture import frontier_picture

__all__ = ("frontier_picture", "page", "require_plotting")
