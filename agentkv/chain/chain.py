"""A chain: an append-only sequence of segments held as token ids, cheap to extend and free to fork."""

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

from attrs import frozen

from agentkv.common_prefix import common_prefix
from agentkv.errors import AgentKVError

__all__ = ("Chain", "Segment", "SegmentKind")

SegmentKind = Literal["anchor", "user", "assistant", "tool_result", "template"]

_DIGEST_BYTES = 16


@frozen(kw_only=True)
class Segment:
    """A run of token ids with one origin. ``label`` names it to people (a role, a tool, a branch)."""

    kind: SegmentKind
    label: str
    ids: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        """Hex BLAKE2b-128 of the ids alone, so equal ids have equal digests whatever they are called."""
        return _hash(_pack(self.ids)).hexdigest()


class Chain:
    """An immutable sequence of token ids; extending one gives another and leaves the first as it was.

    A chain is a length on a shared append-only buffer. Extending the buffer's newest chain appends in
    place; extending an older one starts a buffer that links back to it, so a fork copies nothing of its
    trunk. Not thread-safe.
    """

    __slots__ = ("_buffer", "_count", "_length", "_state")

    def __init__(self, buffer: "_Buffer", length: int, count: int, state: "hashlib.blake2b") -> None:
        self._buffer = buffer
        self._length = length
        self._count = count
        self._state = state

    @classmethod
    def empty(cls) -> "Chain":
        """A chain without tokens."""
        return cls(_Buffer(None), 0, 0, _hash())

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        """Equal ids, however they are cut into segments."""
        return isinstance(other, Chain) and len(self) == len(other) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def extend(self, segment: Segment) -> "Chain":
        """The chain with ``segment`` behind it, in time proportional to the segment."""
        newest = self._own_count() == len(self._buffer.segments)
        buffer = self._buffer if newest else _Buffer(self)
        state = self._state.copy()
        state.update(_pack(segment.ids))
        buffer.ids.extend(segment.ids)
        buffer.segments.append(segment)
        return Chain(buffer, self._length + len(segment.ids), buffer.before_count + len(buffer.segments), state)

    def ids(self) -> list[int]:
        """Every token id, as a fresh list."""
        found: list[int] = []
        for part in self._parts():
            found += part._buffer.ids[: part._own_length()]
        return found

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment, first to last."""
        return tuple(s for part in self._parts() for s in part._buffer.segments[: part._own_count()])

    @property
    def digest(self) -> str:
        """Hex BLAKE2b-128 of all ids: equal for equal ids, however they are cut into segments."""
        return self._state.hexdigest()

    def block_keys(self, block_size: int) -> list[bytes]:
        """A key for each full block of ``block_size`` tokens, as a fresh list.

        A key hashes the key before it together with the block's own ids, so two chains with an equal key
        are equal up to the end of that block. Each block is hashed once in the life of its buffer.
        """
        keys: list[bytes] = []
        for part in self._parts():
            own = part._buffer.keys.setdefault(block_size, [])
            first = part._buffer.before // block_size
            full = len(part) // block_size - first
            if len(own) < full:
                part._buffer.hash_blocks(block_size, full, keys[-1] if keys else b"")
            keys += own[:full]
        return keys

    def common_prefix(self, other_ids: Sequence[int]) -> int:
        """How many leading ids the chain shares with ``other_ids``."""
        return common_prefix(self.ids(), other_ids)

    def check_integrity(self) -> None:
        """Recompute all that is kept incrementally. Raises ``AgentKVError`` where it disagrees."""
        ids = self.ids()
        if len(ids) != self._length or ids != [i for segment in self.segments for i in segment.ids]:
            raise AgentKVError(f"chain {self.digest!r} does not hold the ids of its segments")
        if _hash(_pack(ids)).hexdigest() != self.digest:
            raise AgentKVError(f"chain {self.digest!r} does not hash to its digest")
        fresh = Chain.empty().extend(Segment(kind="anchor", label="", ids=tuple(ids)))
        for size in {size for part in self._parts() for size in part._buffer.keys}:
            if fresh.block_keys(size) != self.block_keys(size):
                raise AgentKVError(f"chain {self.digest!r} does not hash to its keys of {size}-token blocks")

    def _own_length(self) -> int:
        return self._length - self._buffer.before

    def _own_count(self) -> int:
        return self._count - self._buffer.before_count

    def _parts(self) -> Iterator["Chain"]:
        """The chains at which each buffer of the lineage is left for the next, trunk first, then self."""
        parts, at = [self], self._buffer.trunk
        while at is not None:
            parts.append(at)
            at = at._buffer.trunk
        return reversed(parts)


class _Buffer:
    """Ids and segments appended behind ``trunk``; only ever grows, so that chains on it stay true."""

    __slots__ = ("before", "before_count", "ids", "keys", "segments", "trunk")

    def __init__(self, trunk: Chain | None) -> None:
        self.trunk = trunk
        self.before = 0 if trunk is None else trunk._length
        self.before_count = 0 if trunk is None else trunk._count
        self.ids: array[int] = array("I")
        self.segments: list[Segment] = []
        self.keys: dict[int, list[bytes]] = {}

    def hash_blocks(self, size: int, full: int, before: bytes) -> None:
        """Extend the keys of ``size``-token blocks to ``full`` of them; ``before`` is the trunk's last key."""
        keys, start = self.keys[size], self.before // size * size
        key = keys[-1] if keys else before
        for at in range(start + len(keys) * size, start + full * size, size):
            key = _hash(key + _pack(self._block(at, size))).digest()
            keys.append(key)

    def _block(self, at: int, size: int) -> Iterable[int]:
        if at >= self.before:
            return self.ids[at - self.before : at - self.before + size]
        return [*self._trunk_ids(at), *self.ids[: at + size - self.before]]

    def _trunk_ids(self, start: int) -> list[int]:
        """The trunk's ids from ``start`` on: the part of a block that the fork cut in two."""
        found: list[int] = []
        at, stop = self.trunk, self.before
        while at is not None and stop > start:
            own = at._buffer
            found[:0] = own.ids[max(start - own.before, 0) : stop - own.before]
            at, stop = own.trunk, min(stop, own.before)
        return found


def _hash(data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES)


def _pack(ids: Iterable[int]) -> bytes:
    """Four little-endian bytes an id on every machine, since digests are kept in journals."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
