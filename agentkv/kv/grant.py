"""The lease that a request took at its end, as its client gets it."""

from attrs import frozen

from agentkv.kv.handle import KVHandle

__all__ = ("Grant",)


@frozen(kw_only=True)
class Grant:
    """The lease taken at a request's end: its token and handle, or the reason why there is none.

    ``blocks`` of ``offered`` full blocks are held; fewer when the budget for leases is spent.
    """

    token: str | None = None
    handle: KVHandle | None = None
    blocks: int = 0
    offered: int = 0
    reason: str | None = None
