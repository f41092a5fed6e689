"""What the same resumes cost at best: the floor and the ideal, on an idle engine."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from attrs import frozen

from agentkv.bench.measure import figures
from agentkv.bench.random_ids import random_ids
from agentkv.bench.workload import AgentPlan, Workload
from agentkv.engines import Engine, GenerateRequest, PrefillRequest

__all__ = ("Floor", "measure_floor")

IDEAL_NEW_TOKENS = 16


@frozen(kw_only=True)
class Floor:
    """TTFT in seconds, one value a sampled resume.

    ``floor``: everything known before the result's last part arrived is resident. ``ideal``: all but 16 tokens
    are. Both as far as whole blocks go, since nothing else stays cached.
    """

    floor: tuple[float, ...]
    ideal: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Percentiles in milliseconds."""
        return {"floor_ms": figures(self.floor, scale=1e3), "ideal_ms": figures(self.ideal, scale=1e3)}


async def measure_floor(engine: Engine, workload: Workload, samples: int) -> Floor:
    """Ask for ``samples`` resumes, spread over agents and tools, one after the other with nothing else running."""
    floor, ideal = [], []
    for number, (plan, wait) in enumerate(_resumes(workload, samples)):
        known, prompt = _resume(plan, wait)
        salt = f"floor/{number}"
        await _prefill(engine, prompt[:known], salt)
        floor.append(await _ttft(engine, prompt, salt, f"{salt}/floor"))
        kept = (len(prompt) - IDEAL_NEW_TOKENS) // engine.info.block_size * engine.info.block_size
        await _prefill(engine, prompt[:kept], salt)
        ideal.append(await _ttft(engine, prompt[: kept + IDEAL_NEW_TOKENS], salt, f"{salt}/ideal"))
    return Floor(floor=tuple(floor), ideal=tuple(ideal))


def _resumes(workload: Workload, samples: int) -> Iterator[tuple[AgentPlan, int]]:
    """Agents and which of their waits; fewer than ``samples`` only where no agent waits for a tool."""
    after = [(plan, [at for at, wait in enumerate(plan.waits) if wait.source == "tool"]) for plan in workload.plans]
    able = [(plan, waits) for plan, waits in after if waits]
    for number in range(samples if able else 0):
        plan, waits = able[number * len(able) // samples % len(able)]
        yield plan, waits[number % len(waits)]


def _resume(plan: AgentPlan, wait: int) -> tuple[int, list[int]]:
    """The prompt after wait ``wait``, and how much of it was known before the last part came."""
    ids = [i for segment in plan.prompt() for i in segment.ids]
    known = 0
    for number in range(wait + 1):
        output = plan.output(number)
        # Of the right length where the model is free: what it will say is not known here, and costs the same.
        ids.extend(output.forced or random_ids(f"floor/{plan.number}/{number}", output.tokens))
        for arrival in plan.arrivals(number):
            ids = ids[: arrival.keep]
            known = len(ids)
            ids.extend(arrival.ids)
    return known, ids


async def _prefill(engine: Engine, ids: list[int], salt: str) -> None:
    block = engine.info.block_size
    if whole := ids[: len(ids) // block * block]:
        request_id = f"{salt}/{len(whole)}"
        await engine.prefill(PrefillRequest(request_id=request_id, token_ids=whole, cache_salt=salt))


async def _ttft(engine: Engine, ids: list[int], salt: str, name: str) -> float:
    request = GenerateRequest(request_id=name, token_ids=ids, max_tokens=1, min_tokens=1, cache_salt=salt)
    sent_at = engine.clock.now()
    async with aclosing(engine.generate(request)) as deltas:
        async for _ in deltas:
            pass
    return engine.clock.now() - sent_at
