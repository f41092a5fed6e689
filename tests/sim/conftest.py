"""What the tests of the simulated engine share."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from agentkv.engines.base import Delta, GenerateRequest
from agentkv.engines.sim import SimEngine

Ask = Callable[..., Awaitable[list[Delta]]]


@pytest.fixture
def ask() -> Ask:
    """Send one generation and collect its deltas."""
    names = (f"r{number}" for number in range(10**9))

    async def ask(engine: SimEngine, prompt: list[int], max_tokens: int = 4, **options: object) -> list[Delta]:
        options.setdefault("request_id", next(names))
        request = GenerateRequest(token_ids=list(prompt), max_tokens=max_tokens, **options)  # type: ignore[arg-type]
        async with aclosing(engine.generate(request)) as deltas:
            return [delta async for delta in deltas]

    return ask
