"""Which KV blocks an engine has been made to compute, as far as its clients know.

The engine's own count is the judge; this is the prediction it is held against. Blocks are named by chained
content keys, so equal keys mean equal prefixes. Forgets the least recently touched blocks beyond ``capacity``.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Literal

from attrs import define

__all__ = ("BlockFate", "Origin", "Residency")

Origin = Literal["generation", "prefetch"]
BlockFate = Literal["seen", "salted", "unseen"]
Key = bytes


@define
class _Seen:
    origin: Origin
    run_id: str
    used: bool = False


class Residency:
    """Block keys that were computed, by cache salt. ``block_size`` is in tokens."""

    def __init__(self, block_size: int, capacity: int = 1 << 18) -> None:
        self.block_size = block_size
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str | None, Key], _Seen] = OrderedDict()
        self._salts: dict[Key, int] = {}

    def mark(self, salt: str | None, keys: Sequence[Key], origin: Origin, run_id: str) -> None:
        """Note that the blocks ``keys`` were just computed, by whom and for what."""
        for key in keys:
            if (salt, key) not in self._seen:
                self._salts[key] = self._salts.get(key, 0) + 1
            self._seen[salt, key] = _Seen(origin, run_id)
            self._seen.move_to_end((salt, key))
        while len(self._seen) > self._capacity:
            self._forget()

    def touch(self, salt: str | None, keys: Sequence[Key], run_id: str) -> None:
        """Note that the engine had the blocks ``keys``, whoever computed them."""
        unknown = []
        for key in keys:
            if (salt, key) in self._seen:
                self._seen.move_to_end((salt, key))
            else:
                unknown.append(key)
        self.mark(salt, unknown, "generation", run_id)

    def _forget(self) -> None:
        (_, key), _ = self._seen.popitem(last=False)
        self._salts[key] -= 1
        if not self._salts[key]:
            del self._salts[key]

    def resident(self, salt: str | None, keys: Sequence[Key], besides: Collection[Key] = ()) -> int:
        """Tokens at the start of a chain with these keys that were computed under ``salt``, or are ``besides``."""
        blocks = 0
        for key in keys:
            if (salt, key) not in self._seen and key not in besides:
                break
            blocks += 1
        return blocks * self.block_size

    def hit(self, salt: str | None, keys: Sequence[Key], tokens: int, besides: Collection[Key] = ()) -> int:
        """Tokens of a prompt of ``tokens`` that the engine should find cached.

        At most floor((n − 1) / block) × block: the last prompt token is always computed.
        """
        return min(self.resident(salt, keys, besides), (tokens - 1) // self.block_size * self.block_size)

    def fate(self, salt: str | None, key: Key) -> BlockFate:
        """Whether a block was computed under this salt, only under another, or never."""
        if (salt, key) in self._seen:
            return "seen"
        return "salted" if key in self._salts else "unseen"

    def use(self, salt: str | None, key: Key) -> str | None:
        """Note that a generation hit a block; the run that prefilled it ahead, at its first use only."""
        entry = self._seen.get((salt, key))
        if entry is None or entry.used or entry.origin != "prefetch":
            return None
        entry.used = True
        return entry.run_id

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` if the books do not balance."""
        assert sum(self._salts.values()) == len(self._seen)
        assert all(count > 0 for count in self._salts.values())
