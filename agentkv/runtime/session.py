"""What the lanes of one run have in common."""

from collections.abc import Callable
from typing import Any, TypeAlias

import anyio
from attrs import frozen

from agentkv.config import KVConfig
from agentkv.engines.base import Engine
from agentkv.errors import AgentKVError
from agentkv.follow import Memo, ToolTimes, Trust
from agentkv.graph.path import Path
from agentkv.report import Ledger, Span
from agentkv.runtime.events import (
    BranchChosen,
    BranchesListed,
    BranchFailed,
    CallFinished,
    CallStarted,
    GenerationFinished,
    JoinTimedOut,
    RunEvent,
)
from agentkv.runtime.gate import Gate
from agentkv.runtime.pace import Pace
from agentkv.runtime.services import Services
from agentkv.runtime.tenure import owner_of
from agentkv.tools import ToolCall

__all__ = ("News", "Session", "begin_session")

#: What is put before the reducer by what runs outside of it; an error ends the branch, or the run, that it is in.
News: TypeAlias = (
    CallStarted
    | CallFinished
    | GenerationFinished
    | BranchesListed
    | BranchChosen
    | BranchFailed
    | JoinTimedOut
    | AgentKVError
)


@frozen(kw_only=True)
class Session:
    """One run's share in a runtime: ``prefetches`` bounds those that are in the engine at once.

    ``publish`` takes events that are not journalled, ``report`` what the reducer is to know, and where it happened.
    ``memo`` gives what an agent's tools gave before, None to guess nothing; ``trust`` takes what came of guesses;
    ``arrived`` takes pieces of results, ``ran`` the time of each tool that ran, however that ended.
    """

    engine: Engine
    kv: KVConfig
    ledger: Ledger
    gate: Gate
    pace: Pace
    prefetches: anyio.Semaphore
    threads: anyio.CapacityLimiter
    tool_times: ToolTimes
    memo: Callable[[str], Memo] | None
    trust: Trust
    run_id: str
    salt: str | None
    deps: Any
    publish: Callable[[RunEvent], None]
    report: Callable[[Path, News], None]
    arrived: Callable[[Path, ToolCall, str], None]
    ran: Callable[[Span], None]


def begin_session(
    services: Services,
    run_id: str,
    salt: str | None,
    *,
    publish: Callable[[RunEvent], None],
    report: Callable[[Path, News], None],
    arrived: Callable[[Path, ToolCall, str], None],
    ran: Callable[[Span], None],
    deps: Any = None,
    memo: Callable[[str], Memo] | None = None,
) -> Session:
    """What a new run has of a runtime's ``services``, and a ledger and gate of its own. The rest as in ``Session``."""
    engine, kv = services.engine, services.kv
    ledger = Ledger(run_id, services.residency, salt, reuse=kv.kv_transfer_mode != "off")
    return Session(
        engine=engine,
        kv=kv,
        ledger=ledger,
        gate=Gate(ledger, engine.info.block_size),
        pace=services.pace,
        prefetches=anyio.Semaphore(kv.branch_prefetch_limit),
        threads=services.threads,
        tool_times=services.tool_times,
        memo=memo,
        trust=services.trusts.of(owner_of(salt)),
        run_id=run_id,
        salt=salt,
        deps=deps,
        publish=publish,
        report=report,
        arrived=arrived,
        ran=ran,
    )
