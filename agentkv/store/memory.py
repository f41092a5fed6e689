"""A journal that lives as long as its process."""

from collections.abc import Mapping
from typing import Any

from agentkv.errors import StoreError
from agentkv.follow import Way
from agentkv.store.base import RunSummary
from agentkv.store.event import check_names, check_seq, decode_event, encode_event, summary, unknown_run

__all__ = ("MemoryStore",)


class MemoryStore:
    """Events in memory, as text: what comes back is equal in every store and shares nothing with the caller."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = {}
        self._counts: dict[tuple[str, str], dict[Way, int]] = {}
        self._open = False

    async def open(self) -> None:
        """See ``Store``; what was appended before a close is still there."""
        self._open = True

    async def append(self, run_id: str, seq: int, event: Mapping[str, Any]) -> None:
        """See ``Store``."""
        self._check_open()
        text = encode_event(run_id, seq, event)
        check_seq(run_id, len(self._runs.get(run_id, ())), seq)
        self._runs.setdefault(run_id, []).append(text)

    async def load(self, run_id: str) -> list[dict[str, Any]]:
        """See ``Store``."""
        self._check_open()
        if run_id not in self._runs:
            raise unknown_run(run_id)
        return [decode_event(run_id, seq, text) for seq, text in enumerate(self._runs[run_id])]

    async def runs(self) -> list[RunSummary]:
        """See ``Store``."""
        self._check_open()
        return [summary(run_id, len(texts), texts[0], texts[-1]) for run_id, texts in self._runs.items()]

    async def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """See ``Store``."""
        self._check_open()
        check_names(owner, graph, *(name for way in ways for name in way))
        counts = self._counts.setdefault((owner, graph), {})
        for way, times in ways.items():
            counts[way] = counts.get(way, 0) + times

    async def counts(self, owner: str, graph: str) -> dict[Way, int]:
        """See ``Store``."""
        self._check_open()
        return dict(self._counts.get((owner, graph), {}))

    async def aclose(self) -> None:
        """See ``Store``."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("the journal is not open; await open() first")
