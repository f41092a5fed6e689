"""What the tests of the benchmark share: a small workload, and a run of it on the simulator."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from agentkv.bench import Benchmark, Delay, SeedShape, find_modes, run_benchmark

SMALL: dict[str, Any] = {
    "chains": 12,
    "prompt_tokens": 1200,
    "shared_tokens": 300,
    "history_turns": 6,
    "tool_calls": 3,
    "result_tokens": (200, 300),
    "result_pieces": 1,
    "tool_seconds": Delay("uniform", 1.0, 3.0),
    "output_tokens": 24,
    "start_spread": 3.0,
    "seed": 1,
}

Bench = Callable[..., dict[str, Any]]


def silent(_: str) -> None:
    """Where nobody listens."""


@pytest.fixture
def shape() -> Callable[..., SeedShape]:
    """The small workload, with other numbers where given."""

    def make(**numbers: Any) -> SeedShape:
        return SeedShape(**{**SMALL, **numbers})

    return make


@pytest.fixture(scope="session")
def bench() -> Bench:
    """Run the small workload on the simulated CPU machine and return the machine form."""

    def run(modes: str, *, cap: int | None = None, without: tuple[str, ...] = (), **other: Any) -> dict[str, Any]:
        progress = other.pop("progress", silent)
        numbers = {name: other.pop(name) for name in list(other) if name in SMALL}
        plan = Benchmark(
            engine=other.pop("engine", "sim"),
            workload=SeedShape(**{**SMALL, **numbers}),
            modes=find_modes(
                modes,
                cap=cap,
                without=without,
                kv_pool_ratios=other.pop("ratios", (0.85,)),
                cpu_tier_bytes=other.pop("cpu_tier_bytes", 0),
            ),
            floor_samples=other.pop("floor_samples", 0),
            **{"warm_up": 0, **other},
        )
        return anyio.run(run_benchmark, plan, progress)

    return run
