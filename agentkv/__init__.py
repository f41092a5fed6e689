"""agentkv: agents whose runtime keeps the model server's KV cache ahead of them.

Declare tools, agents and graphs; a ``Runtime`` runs them. See ``docs/concepts.md`` for the life of a run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentkv import errors, stream
from agentkv.chain import Message
from agentkv.config import EngineKV, KVConfig, Limits, TransferMode
from agentkv.errors import (
    AgentKVError,
    EngineError,
    EngineStartError,
    GraphError,
    LimitExceeded,
    ModelOutputError,
    NotSupported,
    PromptTooLong,
    RunCancelled,
    RunError,
    SetupError,
    ToolDefinitionError,
    ToolError,
    ToolFailed,
    ToolRetry,
)
from agentkv.graph import END, START, Agent, CallResult, Graph, all_of, first, summary, winner
from agentkv.report import RunReport
from agentkv.runtime import AgentChain, Generated, Result, Run, RunEvent, Runtime, events, run_sync
from agentkv.tools import Context, ToolCall, tool

if TYPE_CHECKING:
    from agentkv import testing

__version__ = "0.1.0"

__all__ = (  # noqa: RUF022 - grouped by what they are for
    # declare
    "Agent",
    "CallResult",
    "Context",
    "END",
    "Graph",
    "START",
    "all_of",
    "first",
    "stream",
    "summary",
    "tool",
    "winner",
    # run
    "AgentChain",
    "EngineKV",
    "Generated",
    "KVConfig",
    "Limits",
    "Message",
    "Result",
    "Run",
    "RunEvent",
    "RunReport",
    "Runtime",
    "ToolCall",
    "TransferMode",
    "events",
    "run_sync",
    # errors
    "AgentKVError",
    "EngineError",
    "EngineStartError",
    "GraphError",
    "LimitExceeded",
    "ModelOutputError",
    "NotSupported",
    "PromptTooLong",
    "RunCancelled",
    "RunError",
    "SetupError",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolRetry",
    "errors",
    # test
    "testing",
    # about
    "__version__",
)


def __getattr__(name: str) -> Any:
    # With what is for tests comes the simulator, which few programs need.
    if name == "testing":
        return import_module("agentkv.testing")
    raise AttributeError(f"module 'agentkv' has no attribute {name!r}")
