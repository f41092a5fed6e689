"""Plan, act, observe, replan: two tools at once, one quick with a long result, one slow.

While the slow tool measures, the quick tool's result is prefilled ahead, so that the replan waits only for what
the slow tool had to say. Runs the same task with and without that, each repetition under a fresh cache salt.

    python examples/plan_act_replan.py [ENGINE]        ENGINE is vllm (default) or sim
"""

import os
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import anyio

import agentkv as akv

RUNBOOKS = Path(__file__).parent / "data" / "runbooks"
MEASURE_SECONDS = 3.2
REPEATS = 2


@akv.tool(read_only=True, idempotent=True, max_tokens=600)
def read_runbook(topic: Literal["disk", "network"]) -> str:
    """The runbook on a topic, in full."""
    return (RUNBOOKS / f"{topic}.md").read_text(encoding="utf-8")


@akv.tool(timeout=30)
async def measure_writes(ctx: akv.Context[None], block_kb: Literal[64, 256]) -> str:
    """Write to this machine's disk for a few seconds and report the rate.

    Args:
        block_kb: Size of each write in KB.
    """
    block = os.urandom(block_kb * 1024)
    written, busy, started = 0, 0.0, time.perf_counter()
    with tempfile.TemporaryFile() as file:
        for _ in range(8):
            before = time.perf_counter()
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            busy += time.perf_counter() - before
            written += len(block)
            await ctx.sleep(MEASURE_SECONDS / 8)
    elapsed = time.perf_counter() - started
    return f"{written / busy / 1e6:.0f} MB per second in writes of {block_kb} KB, sampled over {max(elapsed, MEASURE_SECONDS):.0f} s."


@akv.tool(read_only=True)
def free_space() -> str:
    """The share of this machine's disk that is free."""
    disk = os.statvfs("/")
    return f"{disk.f_bavail / disk.f_blocks:.0%} of the disk is free."


engineer = akv.Agent(
    "engineer",
    instructions=(
        "You are the engineer on call. Read the runbook and measure before you judge. "
        "Then say in two sentences what is wrong and what to do."
    ),
    tools=[read_runbook, measure_writes, free_space],
    max_tokens=48,
)

graph = akv.Graph("on_call", output=str)
plan = graph.plan("plan", engineer, tool_choice=[read_runbook, measure_writes], max_tokens=96)
act = graph.tool("act")
observe = graph.observe("observe", render=lambda result: f"{result.name}: {result.text}")
replan = graph.replan("replan", engineer, labels=Literal["continue", "answer"], tools=[free_space], max_tokens=64)
check = graph.tool("check")
conclude = graph.replan("conclude", engineer, tool_choice="none")
graph.path(akv.START, plan, act, observe, replan)
graph.route(replan, {"continue": check, "answer": akv.END})
graph.path(check, conclude, akv.END)

prompt = "The order database writes slowly since noon. What is wrong?"

script = akv.testing.Script(
    [
        akv.testing.calls(
            akv.testing.call("read_runbook", topic="disk"), akv.testing.call("measure_writes", block_kb=64)
        ),
        akv.testing.label("continue", akv.testing.call("free_space")),
        akv.testing.say("The volume is degraded and has room left. It can wait for the night; tell the owner."),
    ]
)


async def main(engine: str) -> None:
    spec = akv.testing.sim(script) if engine.startswith("sim") else engine
    waits: dict[str, list[float]] = {"bidirectional": [], "prefix": []}
    async with akv.Runtime(spec, progress=print) as rt:
        for _ in range(REPEATS):
            for mode, seen in waits.items():
                salt = secrets.token_hex(8)
                config = akv.KVConfig(kv_transfer_mode=mode)
                result = await rt.run(graph, prompt, kv=config, cache_salt=salt)
                seen.extend(result.kv.ttft_after_tool[:1])
                print(f"\n=== kv_transfer_mode={mode}\n{result.output}\n\n{result.kv.text()}")
    ahead, without = (statistics.median(waits[mode]) for mode in ("bidirectional", "prefix"))
    print(
        f"\nwait after the slow tool, median of {REPEATS}: {ahead:.3f} s with prefilling ahead, "
        f"{without:.3f} s without: {ahead / without:.2f} times."
    )


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "vllm")
