"""A result as one page that is read without a network."""

from agentkv.bench.page.document import page, require_plotting

__all__ = ("page", "require_plotting")
