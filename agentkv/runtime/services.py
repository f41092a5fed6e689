"""What all runs of a runtime share, and what a caller asked for of one."""

from typing import Any, Protocol

import anyio
from attrs import field, frozen

from agentkv.config import KVConfig
from agentkv.engines.base import Engine
from agentkv.follow import Memos, ToolTimes, Transitions, Trusts, WorkingSets
from agentkv.report import Residency
from agentkv.runtime.anchors import Anchors
from agentkv.runtime.heartbeat import Heartbeat
from agentkv.runtime.pace import Pace
from agentkv.runtime.records import KVRecords
from agentkv.store import Store

__all__ = ("Living", "Order", "Services", "share")

# Worker threads for sync tools of all runs together.
TOOL_THREADS = 64


class Living(Protocol):
    """A run, or a chain worked by hand, that holds something in the engine."""

    async def stop(self) -> None:
        """End it, and wait until nothing of it is left in the engine."""
        ...


@frozen(kw_only=True)
class Services:
    """What all runs of a runtime share.

    ``live`` are the runs that have not ended and the chains that were not released; ``pace`` says when they may prefill
    ahead. ``threads`` bounds the worker threads of sync tools. ``tool_times``, ``working_sets`` and ``transitions`` are
    what was learnt from earlier runs, ``memos`` what tools gave in these, ``trusts`` how right guesses at it were.
    ``closed``: the runtime is, or is about to be.
    """

    engine: Engine
    store: Store
    residency: Residency
    kv: KVConfig
    threads: anyio.CapacityLimiter
    heartbeat: Heartbeat
    anchors: Anchors
    records: KVRecords
    pace: Pace
    tool_times: ToolTimes
    working_sets: WorkingSets
    transitions: Transitions
    trusts: Trusts
    memos: Memos
    live: set[Living] = field(factory=set)
    closed: anyio.Event = field(factory=anyio.Event)


def share(engine: Engine, store: Store, kv: KVConfig, memos: Memos) -> Services:
    """What the runs of a new runtime share."""
    anchors = Anchors(engine)
    return Services(
        engine=engine,
        store=store,
        residency=Residency(engine.info.block_size),
        kv=kv,
        threads=anyio.CapacityLimiter(TOOL_THREADS),
        heartbeat=Heartbeat(engine, anchors),
        anchors=anchors,
        records=KVRecords(engine),
        pace=Pace(engine),
        tool_times=ToolTimes(),
        working_sets=WorkingSets(),
        transitions=Transitions(),
        trusts=Trusts(),
        memos=memos,
    )


@frozen(kw_only=True)
class Order:
    """What a caller asked for: the run's own settings beside those of its runtime.

    ``working_set``: tokens that the run will hold at its largest, None to have that estimated.
    """

    run_id: str
    prompt: str
    deps: Any
    salt: str | None
    working_set: int | None = None
