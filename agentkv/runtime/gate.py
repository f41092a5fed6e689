"""Several requests of a run that need the same KV: the first computes it, the others wait until it is there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from agentkv.report import Ledger

__all__ = ("Gate",)


class Gate:
    """Owns who computes which blocks, by key, between the ask of a generation and its first token.

    ``block`` is the engine's, in tokens.
    """

    def __init__(self, ledger: Ledger, block: int) -> None:
        self._ledger, self._block = ledger, block
        self._computing: dict[bytes, anyio.Event] = {}

    @asynccontextmanager
    async def enter(self, keys: Sequence[bytes]) -> AsyncIterator[None]:
        """Wait while another generation computes the first block of ``keys`` that is missing; then compute the others.

        Inside, call ``arrived`` at the first token. Keys are those of a prompt's full blocks.
        """
        while (event := self._computing.get(self._first_missing(keys))) is not None:
            await event.wait()
        mine, done = self._missing(keys), anyio.Event()
        self._computing |= dict.fromkeys(mine, done)
        try:
            yield
        finally:
            self._open(mine)

    def arrived(self, keys: Sequence[bytes]) -> None:
        """The first token of the generation with these keys is there, and so is the KV of its prompt."""
        self._ledger.arrived(keys)
        self._open(keys)

    def _missing(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        return keys[self._ledger.resident(keys) // self._block :]

    def _first_missing(self, keys: Sequence[bytes]) -> bytes:
        missing = self._missing(keys)
        return missing[0] if missing else b""

    def _open(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if (event := self._computing.pop(key, None)) is not None:
                event.set()
