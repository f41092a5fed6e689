"""Which leases gave way, why, and for whom."""

from collections import Counter
from typing import Any

from attrs import frozen

from agentkv.engines import Engine
from agentkv.kv import Record

__all__ = ("EvictionLog",)

PAUSE_SECONDS = 1.0
PAGE = 4096
MOST_PAIRS = 20


@frozen
class _Cause:
    lease_class: str
    reason: str
    for_kind: str


class EvictionLog:
    """Reads an engine's records of leases that gave way while agents run, and sums them up.

    ``prefix`` is what the request ids of this repetition begin with. An engine that manages no KV has no records;
    what its cache evicts is a count (``evictions`` of the result), without a reason.
    """

    def __init__(self, engine: Engine, prefix: str, cursor: int) -> None:
        self._engine, self._prefix, self._cursor = engine, f"{prefix}/", cursor
        self._managed = engine.info.capabilities.get("leases") == "on"
        self._times: Counter[_Cause] = Counter()
        self._blocks: Counter[_Cause] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._lost = 0

    async def run(self) -> None:
        """Read until cancelled."""
        while self._managed:
            await self.read()
            await self._engine.clock.sleep(PAUSE_SECONDS)

    async def read(self) -> None:
        """Take in what is new."""
        if not self._managed:
            return
        # Every record that is looked at counts against the limit, so one page may not reach the end.
        while True:
            asked = {"after": self._cursor, "limit": PAGE, "kinds": ["lease.evict"]}
            page = await self._engine.kv("events", asked)
            before, self._cursor = self._cursor, page.get("cursor", self._cursor)
            self._lost += page.get("lost", 0)
            for wire in page.get("events", ()):
                self._add(Record.from_wire(wire))
            if self._cursor - before < PAGE:
                return

    def to_json(self) -> dict[str, Any]:
        """``causes``: times and blocks by class, reason and kind of request that needed the room.

        ``pairs``: of whose chain how many blocks went for whose request, the most first. ``lost`` records were
        overwritten before they were read, renewals and grants among them.
        """
        causes = [
            {
                "class": cause.lease_class,
                "reason": cause.reason,
                "for": cause.for_kind,
                "times": times,
                "blocks": self._blocks[cause],
            }
            for cause, times in sorted(self._times.items(), key=lambda item: -self._blocks[item[0]])
        ]
        pairs = [
            {"of": of, "for": for_whom, "blocks": blocks}
            for (of, for_whom), blocks in self._pairs.most_common(MOST_PAIRS)
        ]
        return {"causes": causes, "pairs": pairs, "lost": self._lost}

    def _add(self, record: Record) -> None:
        agent, _, rest = record.for_whom.removeprefix(self._prefix).partition("/")
        kind = "prefetch" if rest.startswith("ahead") else "first prompt" if rest == "0" else "resume"
        cause = _Cause(record.lease_class, record.reason, kind)
        self._times[cause] += 1
        self._blocks[cause] += record.blocks
        self._pairs[f"agent {record.run.removeprefix(self._prefix)}", f"agent {agent}"] += record.blocks
