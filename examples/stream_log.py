"""A tool whose output arrives over six seconds: it is prefilled as it arrives, not when it is complete.

agentkv run examples/stream_log.py --engine sim
"""

from collections.abc import AsyncIterator
from typing import Literal

import agentkv as akv

STEPS = ("configure", "compile", "link", "test", "package", "publish")
LINE = "[{step}] unit {number} of 2: done, 0 warnings, stored under build/{step}\n"


async def build(ctx: akv.Context[None], job: str) -> AsyncIterator[str]:
    """What a build writes, a step a second; a real one is ``akv.stream.process(["make", job])``."""
    for step in STEPS:
        await ctx.sleep(1.0)
        for number in (1, 2):
            yield f"{job} " + LINE.format(step=step, number=number)
    yield f"{job} finished: 12 units, 0 failures.\n"


@akv.tool(max_tokens=4000, keep="head")
async def build_log(ctx: akv.Context[None], job: Literal["nightly", "release"]) -> AsyncIterator[str]:
    """Run a build job and read its log to the end."""
    async for line in build(ctx, job):
        yield line


builder = akv.Agent(
    "builder",
    instructions="You watch builds. Read the job's log with the tool, then say in one sentence how it went.",
    tools=[build_log],
    max_tokens=48,
)

graph = akv.Graph("build", output=str)
plan = graph.plan("plan", builder, tool_choice=[build_log], max_tokens=64)
act = graph.tool("act")
answer = graph.replan("answer", builder, tool_choice="none")
graph.path(akv.START, plan, act, answer, akv.END)

prompt = "How did the nightly build go?"

script = akv.testing.Script(
    [
        akv.testing.call("build_log", job="nightly"),
        akv.testing.say("The nightly build finished: 12 units, no failures."),
    ]
)

if __name__ == "__main__":
    result = akv.run_sync(graph, prompt, engine="vllm")
    print(result.output)
    print(result.kv.text())
