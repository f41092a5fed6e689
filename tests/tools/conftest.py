from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentkv.engines.clock import RealClock
from agentkv.tools import Context, Outcome, Tool, ToolCall, invoke


@pytest.fixture
def ask() -> Callable[..., Awaitable[Outcome]]:
    """Call a tool as a run would: ``await ask(tool, '{"a": 1}')``."""

    async def ask(tool: Tool[Any, ..., Any], arguments: str = "{}", *, deps: object = None, **options: Any) -> Outcome:
        context = Context(deps, run_id="run", tool=tool.name, call_id="call_0001")
        return await invoke(tool, ToolCall("call_0001", tool.name, arguments), context, RealClock(), **options)

    return ask
