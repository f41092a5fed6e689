"""Running agents: a pure reducer in an effectful shell."""

from agentkv.runtime import events
from agentkv.runtime.agent_chain import AgentChain, Generated
from agentkv.runtime.events import RunEvent, from_journal
from agentkv.runtime.reducer import replay
from agentkv.runtime.result import Result
from agentkv.runtime.run import Run
from agentkv.runtime.runtime import Runtime
from agentkv.runtime.sync import run_sync

__all__ = (
    "AgentChain",
    "Generated",
    "Result",
    "Run",
    "RunEvent",
    "Runtime",
    "events",
    "from_journal",
    "replay",
    "run_sync",
)
