"""The journal of runs: for each run, an append-only list of events; and what was counted over runs."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from attrs import frozen

from agentkv.follow import Way

__all__ = ("RunSummary", "Store")


@frozen(kw_only=True)
class RunSummary:
    """What a journal holds of one run: how many events, and the types of the first and the last."""

    run_id: str
    events: int
    first: str
    last: str


@runtime_checkable
class Store(Protocol):
    """Contract of every journal.

    Everything but ``open`` and ``aclose`` raises ``StoreError`` on a store that is not open. An operation
    that has begun is carried out even if its caller is cancelled, and the cancellation of a scope is seen only
    after it: an event is in the journal as a whole, or ``append`` raised something other than a cancellation.
    """

    async def open(self) -> None:
        """Make ready for use. Opening an open store is harmless; a closed one may be opened again, and one
        that is being closed behind that.

        Raises ``StoreError`` when there is something in the way, saying what to do about it.
        """
        ...

    async def append(self, run_id: str, seq: int, event: Mapping[str, Any]) -> None:
        """Add the event number ``seq`` of a run; when this returns, the death of the process cannot undo it.

        ``seq`` counts from 0 without gaps, per run. ``event`` is a JSON object with a string ``"type"``;
        tuples come back as lists and keys as strings. Raises ``StoreError`` for a number that is taken or
        not the next, and for an event that is not such an object; the journal is then as before.
        """
        ...

    async def load(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run in order. Raises ``StoreError`` for a run that the journal does not know."""
        ...

    async def runs(self) -> list[RunSummary]:
        """One summary for each run, in the order of their first events."""
        ...

    async def count(self, owner: str, graph: str, ways: Mapping[Way, int]) -> None:
        """Add to how often runs of the graph with digest ``graph`` went each way, for the tenant ``owner`` alone.

        ``owner`` is the tenant's name in records, which does not give its salt away. A way is from one node's name to
        another's.
        """
        ...

    async def counts(self, owner: str, graph: str) -> dict[Way, int]:
        """What was counted so far, by whatever process; empty where nothing was."""
        ...

    async def aclose(self) -> None:
        """Finish what was begun and close. Closing a closed store is harmless."""
        ...
