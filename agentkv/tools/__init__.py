"""Tools: functions that a model may call."""

from agentkv.tools.arguments import Arguments
from agentkv.tools.call import Outcome, Status, ToolCall
from agentkv.tools.context import Context
from agentkv.tools.definition import Keep, Kind, Tool, ToolDecorator, tool
from agentkv.tools.invoke import ToolClock, invoke
from agentkv.tools.serialize import clean_text, dump

__all__ = (
    "Arguments",
    "Context",
    "Keep",
    "Kind",
    "Outcome",
    "Status",
    "Tool",
    "ToolCall",
    "ToolClock",
    "ToolDecorator",
    "clean_text",
    "dump",
    "invoke",
    "tool",
)
