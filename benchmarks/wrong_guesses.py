"""What guesses cost that are all wrong: task time with prefilling ahead over task time without, on one engine.

    python benchmarks/wrong_guesses.py --engine vllm --pairs 8

A few agents at once call a tool twice. While it runs, a hook guesses another text from its first word on; with
``--fresh`` it is believed anew in each pair. Tools take times drawn by ``--seed``, so that resumes come at any moment
of a prefetch. Both modes do the same work, one after the other; which one begins changes from pair to pair. Prints one
JSON object.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import anyio

import agentkv as akv
from agentkv.bench.interval import ratio_interval
from agentkv.config import TransferMode
from agentkv.engines.base import Engine
from agentkv.engines.vllm import VLLMEngine
from agentkv.report import RunReport
from agentkv.testing import call, say, sim

__all__ = ("main",)

WRONG = "Nothing of this is so, and none of these words comes back from the tool. " * 16
FACT = "Parcel {n} left Oslo on day {n} of May with van {n}, and arrives a week later. "
SECONDS = (0.3, 2.5)
STEP = 128
MODES: tuple[TransferMode, TransferMode] = ("bidirectional", "prefix")
SCRIPT = [call("track", parcel=1), call("track", parcel=2), say("Both left Oslo.")]
VLLM = {"dtype": "float32", "num_gpu_blocks_override": 257, "max_model_len": 2048}


@akv.tool(predict=lambda _: WRONG)
async def track(ctx: akv.Context[list[float]], parcel: Literal[1, 2]) -> str:
    """Track a parcel."""
    await ctx.sleep(ctx.deps.pop(0))
    return "".join(FACT.format(n=10 * n + parcel) for n in range(4))


clerk = akv.Agent("clerk", instructions="You track parcels. " * 8, tools=[track], deps=list[float], max_tokens=48)


def desk() -> akv.Graph[list[float], str]:
    """Two calls and an answer."""
    graph = akv.Graph("desk", deps=list[float], output=str)
    first, look = graph.plan("first", clerk, tool_choice=[track]), graph.tool("look")
    second, again = graph.replan("second", clerk, tool_choice=[track]), graph.tool("again")
    answer = graph.replan("answer", clerk, tool_choice="none", max_tokens=12)
    graph.path(akv.START, first, look, second, again, answer, akv.END)
    return graph


async def one_side(rt: akv.Runtime, mode: str, options: argparse.Namespace, pair: int) -> list[RunReport]:
    """The reports of the runs of one pair in the runtime's mode."""
    rng, graph = Random(f"{options.seed}/{pair}"), desk()
    seconds = [[rng.uniform(*SECONDS), rng.uniform(*SECONDS)] for _ in range(options.agents)]
    # Each mode has tenants of its own, so that neither finds what the other computed.
    salt = f"{mode}/{pair if options.fresh else 0}"
    found: list[RunReport] = []

    async def task(number: int) -> None:
        await rt.engine.clock.sleep(0.2 * number)
        prompt = f"{pair}.{number}: where are the parcels of customer {rng.random()}?"
        result = await rt.run(graph, prompt, deps=seconds[number], cache_salt=salt)
        found.append(result.kv)

    async with anyio.create_task_group() as tasks:
        for number in range(options.agents):
            tasks.start_soon(task, number)
    return found


async def measure(engine: Engine, options: argparse.Namespace) -> dict[str, Any]:
    """Task times of all pairs and what was prefilled for nothing, in tokens."""
    pairs, reports = [], []
    on, off = (akv.KVConfig(kv_transfer_mode=mode, prefetch_step=STEP, anchor_ttl=0.5) for mode in MODES)
    async with engine, akv.Runtime(engine, kv=on) as with_it, akv.Runtime(engine, kv=off) as without:
        runtimes = dict(zip(MODES, (with_it, without), strict=True))
        for pair in range(options.pairs + 1):
            sides = {}
            for mode in MODES if pair % 2 else MODES[::-1]:
                sides[mode] = await one_side(runtimes[mode], mode, options, pair)
            # The first pair warms up.
            if pair:
                pairs.append(tuple(sum(map(task_seconds, sides[mode])) for mode in MODES))
                reports += sides[MODES[0]]
    return summed(pairs, reports, options.seed)


def task_seconds(report: RunReport) -> float:
    """From the first ask to the end of the last generation."""
    return max(span.end for span in report.spans) - min(span.start for span in report.spans)


def summed(pairs: list[Any], reports: Sequence[RunReport], seed: int) -> dict[str, Any]:
    """The result."""
    lower, ratio, upper = ratio_interval(pairs, seed=seed)
    hook = [source for report in reports for source in report.sources if source.name == "hook"]
    return {
        "schema": "agentkv.wrong-guesses/1",
        "pairs": len(pairs),
        "task_time_on_over_off": {"lower": lower, "ratio": ratio, "upper": upper},
        "guessed": {"predicted": sum(s.prefetched for s in hook), "used": sum(s.used for s in hook)},
        "wasted": sum(report.totals.wasted for report in reports),
        # A resume cuts off what is in flight: that is all that can be in front of it.
        "cut_off_per_resume": max(cut_off_per_resume(report) for report in reports),
        "prefetch_step": STEP,
    }


def cut_off_per_resume(report: RunReport) -> float:
    """Tokens that were in flight when a run's resumes were asked for: the mean over these, at the most."""
    return report.totals.aborted / max(1, len(report.ttft_after_tool))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("vllm", "sim"), default="vllm")
    parser.add_argument("--pairs", metavar="N", type=int, default=8)
    parser.add_argument("--agents", metavar="N", type=int, default=3, help="at once")
    parser.add_argument(
        "--fresh", action="store_true", help="a new tenant for each pair, who has seen no guess go wrong yet"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    options = parser.parse_args(arguments)
    engine: Engine = sim(SCRIPT) if options.engine == "sim" else VLLMEngine(options=VLLM)
    print(json.dumps(anyio.run(measure, engine, options), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
