"""Whether the second tier works on this machine: ``python benchmarks/gpu_tier_check.py [8b|tiny] [--tokens N]``.

Starts vLLM with random weights and a small pool, computes a chain, moves it to host memory and back, lets it go on, and
prints one JSON object: times, bandwidths, and whether the tokens and the cached lengths are what they should be.
``tiny`` runs anywhere, ``8b`` is for a GPU with 40 GB or more.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import anyio

from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.kv import Directive, PolicySettings
from gpu_model import main as write_model

GIB = 1 << 30
OPTIONS: dict[str, dict[str, Any]] = {
    "8b": {"block_size": 16, "num_gpu_blocks_override": 1200, "max_model_len": 16_384, "enforce_eager": True},
    "tiny": {"block_size": 32, "num_gpu_blocks_override": 600, "max_model_len": 16_384, "enforce_eager": True},
}


class Check:
    """One engine and the requests that are made of it."""

    def __init__(self, engine: VLLMEngine) -> None:
        self.engine = engine
        self.count = 0

    async def ask(self, ids: list[int], directive: Directive | None = None, *, reuse: bool = True) -> dict[str, Any]:
        """One request of eight tokens."""
        self.count += 1
        request = GenerateRequest(
            request_id=f"c{self.count}", token_ids=ids, max_tokens=8, min_tokens=8, directive=directive, reuse=reuse
        )
        began, first, out, last = time.perf_counter(), 0.0, [], None
        async for last in self.engine.generate(request):
            first = first or time.perf_counter() - began
            out.extend(last.token_ids)
        assert last is not None
        assert last.usage is not None
        return {"ttft_ms": first * 1e3, "cached": last.usage.cached, "ids": out, "grant": last.grant}

    async def until(self, away: bool, blocks: int) -> float:
        """Milliseconds until ``blocks`` are in host memory alone, or none are."""
        began = time.perf_counter()
        with anyio.fail_after(20):
            while True:
                stats = await self.engine.kv("stats", {})
                if (stats["tier_away"] >= blocks) if away else (stats["tier_away"] == 0):
                    return (time.perf_counter() - began) * 1e3


async def check(shape: str, tokens: int) -> dict[str, Any]:
    """Start the engine, move a chain, compare."""
    options = OPTIONS[shape]
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), shape)
        kv = PolicySettings(cpu_tier_bytes=4 * GIB if shape == "8b" else GIB, tier_verify=1.0)
        all_options = {"load_format": "dummy", "skip_tokenizer_init": True, **options}
        began = time.perf_counter()
        async with VLLMEngine(
            folder, kv=kv, options=all_options, progress=lambda line: print(line, file=sys.stderr)
        ) as e:
            started = time.perf_counter() - began
            found = await moved(Check(e), tokens, options["block_size"], options["num_gpu_blocks_override"])
            stats = await e.kv("stats", {})
            names = ("tier_failed", "tier_bandwidth", "tier_least_tokens", "tier_waited_s", "errors", "records")
            return {
                "schema": "agentkv.gpu_tier_check/1",
                "version": e.info.version,
                "capabilities": dict(e.info.capabilities),
                "start_s": round(started, 1),
                **found,
                **{name: stats.get(name) for name in names},
            }


async def moved(check: Check, tokens: int, block: int, pool: int) -> dict[str, Any]:
    """A chain's way out, back, and out and back again behind others that take its place."""
    random = Random(0)

    def text(length: int) -> list[int]:
        return random.choices(range(100, 30_000), k=length)

    chain = text(tokens)
    lease = Directive(run="r", ttl=300.0)
    cold = await check.ask(chain, lease)
    token, blocks = cold["grant"].token, tokens // block
    demoted = await check.engine.kv("demote", {"tokens": [token]})
    out_ms = await check.until(True, blocks - 1)
    for _ in range(3):
        await check.ask(text(min(pool // 2, 500) * block))
    promoted = await check.engine.kv("promote", {"tokens": [token]})
    back_ms = await check.until(False, blocks)
    same = await check.ask([*chain, 7])
    again = await check.engine.kv("demote", {"tokens": [token]})
    out_again_ms = await check.until(True, blocks - 1)
    for _ in range(3):
        await check.ask(text(min(pool // 2, 500) * block))
    longer = [*chain, *text(200)]
    resumed = await check.ask(longer, Directive(run="r", ttl=300.0, lease=token, resume=True))
    warm = await check.ask(longer)
    reference = await check.ask(longer, reuse=False)
    size = blocks * (await check.engine.kv("info", {}))["kv_bytes_per_token"] * block
    return {
        "chain_blocks": blocks,
        "chain_mb": round(size / 1e6, 1),
        "reasons": [demoted, promoted, again],
        "cold_ttft_ms": round(cold["ttft_ms"], 1),
        "out_ms": round(out_ms, 1),
        "back_ms": round(back_ms, 1),
        "out_again_ms": round(out_again_ms, 1),
        "resume_ttft_ms": round(resumed["ttft_ms"], 1),
        "warm_ttft_ms": round(warm["ttft_ms"], 1),
        "recomputed_ttft_ms": round(reference["ttft_ms"], 1),
        "hit_after_promote": same["cached"],
        "hit_at_resume": resumed["cached"],
        "hits_are_whole": same["cached"] >= blocks * block - block and resumed["cached"] >= blocks * block - block,
        "same_ids_as_recomputed": resumed["ids"] == reference["ids"],
        "same_ids_as_warm": resumed["ids"] == warm["ids"],
    }


def main() -> int:
    """Run the check; 0 if the chain came back whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", nargs="?", choices=sorted(OPTIONS), default="8b")
    parser.add_argument("--tokens", type=int, default=6000)
    options = parser.parse_args()
    found = anyio.run(check, options.shape, options.tokens)
    print(json.dumps(found, indent=1, default=str))
    return 0 if found["hits_are_whole"] and not found["tier_failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
