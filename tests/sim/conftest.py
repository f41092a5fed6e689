"""What the tests of the simulated engine share."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from agentkv.engines.base import Delta, GenerateRequest, PrefillRequest, Receipt
from agentkv.engines.sim import SimEngine
from agentkv.kv import Directive, PolicySettings

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


class ManagedClient:
    """A client of a simulated engine that manages KV; ``fields`` are those of directives."""

    names = count()

    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine

    async def ask(
        self, prompt: list[int], max_tokens: int = 4, *, name: str = "", tell: bool = True, **fields: Any
    ) -> Delta:
        """Generate to the end; the last delta. ``tell=False`` sends no directive."""
        directive = Directive(**{"run": "r", **fields}) if tell else None
        request = GenerateRequest(
            request_id=name or f"m{next(self.names)}", token_ids=prompt, max_tokens=max_tokens, directive=directive
        )
        async with aclosing(self.engine.generate(request)) as deltas:
            return [delta async for delta in deltas][-1]

    async def ahead(self, prompt: list[int], *, name: str = "", **fields: Any) -> Receipt:
        """Prefill ahead of need; the lease is speculative unless told otherwise."""
        directive = Directive(**{"run": "r", "kind": "prefill", "lease_class": "speculative", **fields})
        name = name or f"m{next(self.names)}"
        return await self.engine.prefill(PrefillRequest(request_id=name, token_ids=prompt, directive=directive))

    async def call(self, operation: str, **payload: Any) -> dict[str, Any]:
        return await self.engine.kv(operation, payload)

    async def admit(self, run: str, blocks: int, ttl: float = 60.0, **payload: Any) -> dict[str, Any]:
        return await self.call("admit", run=run, blocks=blocks, ttl=ttl, **payload)

    async def records(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in (await self.call("events"))["events"] if event["kind"] == kind]

    async def at_rest(self) -> None:
        """Assert that nothing is left in the engine: no lease, no run, no request, and every block is free."""
        stats = await self.engine.stats()
        left = ("leases", "leased_blocks", "runs", "prefetches", "held_requests", "live_requests", "running", "waiting")
        assert {name: stats[name] for name in left} == dict.fromkeys(left, 0)
        assert stats["free_blocks"] == stats["pool_blocks"]
        self.engine.check_integrity()


def count_up(request: GenerateRequest) -> range:
    """Output ids that depend on the position alone, so that chains can be extended without asking."""
    return range(5000, 5000 + request.max_tokens)


@pytest.fixture
def managed() -> Callable[..., ManagedClient]:
    """A client of a new engine with blocks of 32 tokens; options are the engine's, ``settings`` the policy's."""

    def make(*, settings: dict[str, Any] | None = None, **options: Any) -> ManagedClient:
        return ManagedClient(SimEngine(count_up, kv=PolicySettings(**settings or {}), **options))

    return make
