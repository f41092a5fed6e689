"""An engine's records of what happened to KV, read from where a runtime began."""

from attrs import define

from agentkv.engines.base import Engine
from agentkv.kv import Record

__all__ = ("KVRecords",)

PAGE = 1000


@define
class KVRecords:
    """Reads ``engine``'s records behind number ``start``; an engine that manages no KV has none."""

    engine: Engine
    start: int = 0

    async def begin(self) -> None:
        """Leave out what has happened so far."""
        self.start = (await self.engine.kv("stats", {})).get("last_record", 0)

    async def read(self, run_id: str | None = None) -> list[Record]:
        """All records there are, oldest first, or those that name ``run_id``: its KV, or room made for it."""
        found: list[Record] = []
        cursor = self.start
        while True:
            page = await self.engine.kv("events", {"after": cursor, "limit": PAGE})
            if not page.get("events"):
                return found
            cursor = page["cursor"]
            read = map(Record.from_wire, page["events"])
            found += [each for each in read if run_id is None or _names(each, run_id)]


def _names(record: Record, run_id: str) -> bool:
    return record.run == run_id or record.for_whom.startswith(f"{run_id}/")
