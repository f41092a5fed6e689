"""A main agent's reasoning handed to a tool agent, and its result spliced back into the main chain.

The tool agent is a fork of the main chain: it reads the reasoning for nothing. While it calls its tool, the main chain
waits; what comes back is prefilled before the main agent is asked. By hand, on the chain API; ``graph`` is the same as
a graph.

    python examples/two_agents.py [ENGINE]        ENGINE is vllm (default), vllm:MODEL or sim
"""

import json
import sys
from typing import Literal

import anyio

import agentkv as akv


@akv.tool(read_only=True, idempotent=True)
async def stock(part: Literal["belt", "drum", "motor"]) -> str:
    """How many of a part are in store.

    Args:
        part: Its name.
    """
    return {"belt": "4 belts, 40 m each", "drum": "no drum; next delivery on the 8th", "motor": "1 motor"}[part]


mechanic = akv.Agent(
    "mechanic",
    instructions="You keep a parcel sorting hall running. Think before you act; parts are counted by the store's tool.",
    tools=[stock],
    max_tokens=64,
)
ASIDE = "Find out from the store whether this can be done now, and answer in one sentence."
prompt = "The main belt slips. What is the first thing to do?"

graph = akv.Graph("two_agents")
think = graph.plan("think", mechanic, tool_choice="none")
aside = graph.fork("fork", {"store": ASIDE})
back = graph.join("back", aside, akv.all_of())
graph.path(akv.START, think, aside)
graph.path(back, graph.replan("decide", mechanic, tool_choice="none"), akv.END)

# What the simulated model says on the main chain and in the fork; a real model decides for itself.
script = akv.testing.Script(
    {
        "": [
            akv.testing.say("The drum is worn, I think: the belt was tensioned a week ago, and slips under load only."),
            akv.testing.say("Powder the drum tonight, and change it on the 8th."),
        ],
        "fork.store": [
            akv.testing.call("stock", part="drum"),
            akv.testing.say("There is no drum in store; the next one comes on the 8th."),
        ],
    }
)


async def by_hand(rt: akv.Runtime) -> akv.AgentChain:
    """The two agents on the chain API; returns the main chain."""
    main = rt.chain(mechanic)
    main.append(prompt)
    await main.generate(calls=False)
    helper = main.fork("store")
    helper.append(ASIDE)
    while (turn := await helper.generate()).message.calls:
        for call in turn.message.calls:
            found = await stock(**json.loads(call.arguments))
            helper.append(akv.Message(role="tool", content=found, call_id=call.id, name=call.name))
    await helper.release()
    main.append(f"store:\n{turn.text}")
    await main.prefill()
    await main.generate(calls=False)
    return main


async def main(engine: str) -> None:
    """Run the two agents by hand, and say what each generation had to compute."""
    async with akv.Runtime(akv.testing.sim(script) if engine == "sim" else engine, progress=print) as rt:
        chain = await by_hand(rt)
        for step in chain.steps:
            print(f"{step.branch or 'main':<12} prompt {step.prompt:>5}  computed {step.computed:>5}")
        print(chain.messages[-1].content)
        await chain.release()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "vllm")
