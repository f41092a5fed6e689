"""The name of a piece of KV: which engine holds it, since which reset, for whom, and what tokens it covers."""

from typing import Any

from attrs import asdict, frozen

__all__ = ("KVHandle",)


@frozen(kw_only=True)
class KVHandle:
    """Names the KV of the first ``length`` tokens of a chain on one engine.

    ``engine_id`` is unique to an engine's start, ``epoch`` counts cache resets within it, ``owner`` is whose
    KV it is, ``digest`` is the engine's content hash of the chain's last full block (hexadecimal).
    """

    engine_id: str
    epoch: int
    owner: str
    digest: str
    length: int

    def verify(self, held: "KVHandle") -> str | None:
        """None if this handle names exactly what is ``held``, else the first field that differs, and why."""
        if self.engine_id != held.engine_id:
            return "engine: the handle was issued by another engine or another start of it"
        if self.epoch != held.epoch:
            return "epoch: the prefix cache was reset after the handle was issued"
        if self.owner != held.owner:
            return "owner: the handle belongs to someone else"
        if self.length != held.length:
            return "length: the KV held covers another number of tokens, part of it was evicted or more was added"
        if self.digest != held.digest:
            return "digest: the KV held is that of other tokens"
        return None

    def as_wire(self) -> dict[str, Any]:
        """The handle as a JSON object with the five fields by their names."""
        return asdict(self)
