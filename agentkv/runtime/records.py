"""An engine's records of what happened to KV, read from where a runtime began."""

from attrs import define

from agentkv.engines.base import Engine
from agentkv.kv import Record

__all__ = ("KVRecords",)

PAGE = 4096


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
        cursor, wanted = self.start, {} if run_id is None else {"run": run_id}
        while True:
            page = await self.engine.kv("events", {"after": cursor, "limit": PAGE, **wanted})
            found += map(Record.from_wire, page.get("events", ()))
            if page.get("cursor", cursor) >= page.get("last", cursor):
                return found
            cursor = page["cursor"]
