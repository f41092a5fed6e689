"""Several calls at once: results enter the conversation in call order, however they finish.

agentkv run examples/parallel_tools.py --engine sim
"""

from typing import Literal

import agentkv as akv

Town = Literal["Bergen", "Cadiz", "Gdansk"]
RAIN = {"Bergen": 22, "Cadiz": 3, "Gdansk": 11}
TIDES = {"Bergen": 0.9, "Cadiz": 2.8, "Gdansk": 0.1}


@akv.tool(read_only=True)
async def rainy_days(ctx: akv.Context[None], town: Town) -> dict[str, int | str]:
    """Days of rain in an average month."""
    await ctx.sleep(1.0)
    return {"town": town, "rainy_days": RAIN[town]}


@akv.tool(read_only=True)
async def tidal_range(ctx: akv.Context[None], town: Town) -> dict[str, float | str]:
    """Difference between high and low water, in metres."""
    await ctx.sleep(2.0)
    return {"town": town, "tidal_range_m": TIDES[town]}


harbour = akv.Agent(
    "harbour",
    instructions="You compare harbours. Call both tools for the town, then sum up in one sentence.",
    tools=[rainy_days, tidal_range],
    max_tokens=64,
)

graph = akv.Graph("harbours", output=str)
plan = graph.plan("plan", harbour, tool_choice=[rainy_days, tidal_range], max_tokens=128)
act = graph.tool("act")
answer = graph.replan("answer", harbour, tool_choice="none")
graph.path(akv.START, plan, act, answer, akv.END)

prompt = "What is the harbour of Bergen like?"

script = akv.testing.Script(
    [
        akv.testing.calls(
            akv.testing.call("rainy_days", town="Bergen"), akv.testing.call("tidal_range", town="Bergen")
        ),
        akv.testing.say("Bergen is wet: 22 days of rain a month, and a tidal range of 0.9 m."),
    ]
)

if __name__ == "__main__":
    result = akv.run_sync(graph, prompt, engine="vllm")
    print(result.output)
    print(result.kv.text())
