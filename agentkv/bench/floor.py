"""What the same resumes cost at best: the floor and the ideal, on an idle engine."""

from contextlib import aclosing
from typing import Any

from attrs import frozen

from agentkv.bench.measure import figures
from agentkv.bench.workload import ChainPlan, SeedShape, random_ids
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


async def measure_floor(engine: Engine, shape: SeedShape, samples: int) -> Floor:
    """Ask for ``samples`` resumes, spread over agents and calls, one after the other with nothing else running."""
    floor, ideal = [], []
    for number in range(samples if shape.tool_calls else 0):
        plan = shape.plans[number * shape.chains // samples % shape.chains]
        call = number % shape.tool_calls
        known, prompt = _resume(plan, call)
        salt = f"floor/{number}"
        await _prefill(engine, prompt[:known], salt)
        floor.append(await _ttft(engine, prompt, salt, f"{salt}/floor"))
        kept = (len(prompt) - IDEAL_NEW_TOKENS) // engine.info.block_size * engine.info.block_size
        await _prefill(engine, prompt[:kept], salt)
        ideal.append(await _ttft(engine, prompt[: kept + IDEAL_NEW_TOKENS], salt, f"{salt}/ideal"))
    return Floor(floor=tuple(floor), ideal=tuple(ideal))


def _resume(plan: ChainPlan, call: int) -> tuple[int, list[int]]:
    """The prompt after call ``call``, and how much of it was known before the result's last part."""
    ids = [*plan.anchor(), *(i for turn in plan.history() for i in turn)]
    last: tuple[int, ...] = ()
    for number in range(call + 1):
        # Of the right length: what the model will say is not known here, and costs the same.
        ids.extend(random_ids(f"floor/{plan.number}/{number}", plan.shape.output_tokens))
        pieces = plan.pieces(number)
        ids.extend(i for piece in pieces for i in piece)
        last = pieces[-1]
    return len(ids) - len(last), ids


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
