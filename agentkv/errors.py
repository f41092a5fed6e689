"""Every error that agentkv raises, in one tree.

Set-up errors say that a declaration is wrong and are raised before anything runs; run errors say what
happened to a run. Each message names the node, tool or field at fault and the remedy.
"""

from typing import Any

__all__ = (
    "AdmissionRefused",
    "AgentKVError",
    "DirectiveError",
    "EngineError",
    "EngineStartError",
    "EngineUnavailable",
    "GraphError",
    "JoinError",
    "JournalError",
    "LimitExceeded",
    "ModelOutputError",
    "NodeError",
    "NotSupported",
    "PromptTooLong",
    "RunCancelled",
    "RunError",
    "ScriptError",
    "SetupError",
    "SpecialTokenError",
    "StoreError",
    "TemplateError",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolRetry",
)


class AgentKVError(Exception):
    """Base of every error that agentkv raises on purpose."""


class SetupError(AgentKVError):
    """Base of errors raised while something is declared or started, before any run exists."""


class ToolDefinitionError(SetupError, TypeError):
    """Raised when a function cannot become a tool; names the tool and the parameter."""


class GraphError(SetupError):
    """Raised when a graph does not compile; names the node at fault."""


class TemplateError(SetupError):
    """Raised when a chat template is missing, does not render, or rejects the messages it is given."""


class NotSupported(SetupError):  # noqa: N818 - reads as a statement, like KeyError's siblings in the field
    """Raised when an option exists in the interface but is not built, or not for this engine."""


class DirectiveError(SetupError, ValueError):
    """Raised when a directive for the engine has a field out of its bounds; names run and field."""


class EngineStartError(SetupError):
    """Raised when an engine cannot start: model path, memory, platform, version or entry guard."""


class ScriptError(SetupError):
    """Raised when a simulated run asks for more, or something other, than its script holds."""


class StoreError(AgentKVError):
    """Raised when a journal cannot be opened, read or written."""


class JournalError(StoreError):
    """Raised when a journal's record is not what a run wrote there; names the record and the remedy."""

    remedy = "read it with the agentkv that wrote it, or restore the journal from a copy"


class RunError(AgentKVError):
    """Base of errors that end a run. ``run_id`` names the run, ``report`` is its ``RunReport``, where one exists."""

    run_id: str | None = None
    report: Any = None


class LimitExceeded(RunError):  # noqa: N818 - the field's usual name for it
    """Raised when a run passes one of its ``Limits``; names the limit, its value, and where to raise it."""


class PromptTooLong(RunError):  # noqa: N818 - says what is wrong with the prompt
    """Raised when a prompt leaves no room for the answer within the model's maximum length."""


class ModelOutputError(RunError):
    """Raised when a generation ends in something its node cannot use, after the permitted retries."""


class NodeError(RunError):
    """Raised when a function given to a node (``observe``'s ``render``) raises or returns nothing usable."""


class JoinError(RunError):
    """Raised when a join has fewer outputs than it needs, or a fork lists no branches; names the node."""


class SpecialTokenError(RunError):
    """Raised when untrusted text could not be encoded without an id of the added vocabulary."""


class ToolError(RunError):
    """Raised when a tool raises an exception of its own; names the tool. ``__cause__`` is that exception."""


class RunCancelled(RunError):  # noqa: N818 - says what happened to the run
    """Raised by ``Run.result()`` when the run was cancelled."""


class AdmissionRefused(RunError):  # noqa: N818 - says what happened to the run
    """Raised when the engine takes no more runs in its line, or none of this one's size."""


class EngineError(RunError):
    """Raised when the engine fails a request."""


class EngineUnavailable(EngineError):  # noqa: N818 - says what is wrong with the engine
    """Raised when the engine has died or was closed while a run needed it."""


class ToolRetry(AgentKVError):  # noqa: N818 - an instruction to the model, raised by tools
    """Raised by a tool to tell the model to try the call again; counts against the tool's retries."""


class ToolFailed(AgentKVError):  # noqa: N818 - an outcome told to the model, raised by tools
    """Raised by a tool to tell the model that the call failed; counts against no budget."""
