"""A status that is polled: while the tool waits, its last report is taken for the next one and prefilled.

agentkv run examples/poll_status.py --engine sim
"""

from typing import Literal

import agentkv as akv

STAGES = ("unloaded", "inspected", "cleared")
MANIFEST = "".join(f"- crate {n:02}: 40 kg of tea, sealed, in bay {n % 7}, checked by hand\n" for n in range(1, 13))


@akv.tool(read_only=True)
async def cargo_status(ctx: akv.Context[None], ship: Literal["Aurora"], check: Literal[1, 2, 3]) -> str:
    """The cargo of a ship, as the harbour office reports it; takes a while."""
    await ctx.sleep(2.0)
    return f"{ship}'s cargo\n{MANIFEST}State of the cargo: {STAGES[check - 1]}."


clerk = akv.Agent(
    "clerk",
    instructions="You wait until a ship's cargo is cleared. Ask for its status until it is, then say so.",
    tools=[cargo_status],
    max_tokens=48,
)

graph = akv.Graph("cargo", output=str)
first = graph.plan("first", clerk, tool_choice=[cargo_status])
look = graph.tool("look")
second = graph.replan("second", clerk, tool_choice=[cargo_status])
look_again = graph.tool("look_again")
answer = graph.replan("answer", clerk, tool_choice="none")
graph.path(akv.START, first, look, second, look_again, answer, akv.END)

prompt = "Is the cargo of the Aurora cleared?"

script = akv.testing.Script(
    [
        akv.testing.call("cargo_status", ship="Aurora", check=1),
        akv.testing.call("cargo_status", ship="Aurora", check=2),
        akv.testing.say("It was inspected, and is not cleared yet."),
    ]
)

if __name__ == "__main__":
    result = akv.run_sync(graph, prompt, engine="vllm")
    print(result.output)
    print(result.kv.text())
