"""Plan, act, observe, replan: two tools at once, one quick with a long result, one slow.

While the slow tool measures, the quick tool's result is prefilled ahead, so that the replan waits only for what
the slow tool had to say. Runs the same task with and without that, each repetition under a fresh cache salt.

    python examples/plan_act_replan.py [ENGINE]        ENGINE is vllm (default), vllm:MODEL or sim
"""

import os
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Literal

import anyio
from attrs import frozen

import agentkv as akv

# Tools open files under this folder and nowhere else.
DATA = Path(__file__).parent / "data"
SAMPLES = 8
SECONDS = 3.2
REPEATS = 2


@akv.tool(read_only=True, idempotent=True, max_tokens=600)
def read_runbook(topic: Literal["disk", "network"]) -> str:
    """The runbook on a topic, in full."""
    return (DATA / "runbooks" / f"{topic}.md").read_text(encoding="utf-8")


def timed_write(file: IO[bytes], block: bytes) -> float:
    """Seconds that it takes to write ``block`` through to the disk."""
    started = time.perf_counter()
    file.write(block)
    file.flush()
    os.fsync(file.fileno())
    return time.perf_counter() - started


@akv.tool(timeout=30)
async def measure_writes(ctx: akv.Context[None], block_kb: Literal[64, 256]) -> str:
    """Write to this machine's disk for a few seconds and report the rate.

    Args:
        block_kb: Size of each write in KB.
    """
    block = os.urandom(block_kb * 1024)
    busy = 0.0
    with tempfile.TemporaryFile(dir=DATA) as file:
        for _ in range(SAMPLES):
            # In a thread: a write that blocked the event loop would hold up what is prefilled meanwhile.
            busy += await anyio.to_thread.run_sync(timed_write, file, block)
            await ctx.sleep(SECONDS / SAMPLES)
    rate = SAMPLES * len(block) / busy / 1e6
    return f"{rate:.0f} MB per second in writes of {block_kb} KB, sampled over {SECONDS:.0f} s."


@akv.tool(read_only=True)
def free_space() -> str:
    """The share of this machine's disk that is free."""
    disk = shutil.disk_usage(DATA)
    return f"{disk.free / disk.total:.0%} of the disk is free."


@frozen
class Finding:
    """What the engineer concludes."""

    volume: Literal["healthy", "degraded", "failing"]
    act: Literal["now", "tonight", "not at all"]


engineer = akv.Agent(
    "engineer",
    instructions=(
        "You are the engineer on call. Read the runbook and measure before you judge, "
        "then say how the volume is and when to act."
    ),
    tools=[read_runbook, measure_writes, free_space],
    output=Finding,
    max_tokens=96,
)

graph = akv.Graph("on_call", output=Finding)
plan = graph.plan("plan", engineer, tool_choice=[read_runbook, measure_writes])
act = graph.tool("act")
observe = graph.observe("observe", render=lambda result: f"{result.name}: {result.text}")
replan = graph.replan("replan", engineer, labels=Literal["continue", "answer"], tools=[free_space])
check = graph.tool("check")
conclude = graph.replan("conclude", engineer, tool_choice="none")
graph.path(akv.START, plan, act, observe, replan)
graph.route(replan, {"continue": check, "answer": akv.END})
graph.path(check, conclude, akv.END)

prompt = "The order database writes slowly since noon. How is the volume, and when do we act?"

# What the simulated model says, turn by turn; a real model decides for itself.
script = akv.testing.Script(
    [
        akv.testing.calls(
            akv.testing.call("read_runbook", topic="disk"), akv.testing.call("measure_writes", block_kb=64)
        ),
        akv.testing.label("continue", akv.testing.call("free_space")),
        akv.testing.say('{"volume": "degraded", "act": "tonight"}'),
    ]
)


async def main(engine: str) -> None:
    """Run the task ``REPEATS`` times in each mode and compare the waits after the tools."""
    waits: dict[akv.TransferMode, list[float]] = {"bidirectional": [], "prefix": []}
    async with akv.Runtime(akv.testing.sim(script) if engine == "sim" else engine, progress=print) as rt:
        for _ in range(REPEATS):
            for mode, seen in waits.items():
                kv = akv.KVConfig(kv_transfer_mode=mode)
                result = await rt.run(graph, prompt, kv=kv, cache_salt=secrets.token_hex(8))
                seen.append(result.kv.ttft_after_tool[0])
                print(f"\n=== kv_transfer_mode={mode}: {result.output}\n{result.kv.text()}")
    ahead, without = (statistics.median(waits[mode]) for mode in waits)
    print(f"\nWait after the slow tool, median of {REPEATS} runs each, every run under a salt of its own:")
    print(f"  prefilled ahead {ahead:.3f} s, prefix caching alone {without:.3f} s: {ahead / without:.2f} times")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "vllm")
