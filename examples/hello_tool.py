"""The smallest agent: one tool, one question.

agentkv run examples/hello_tool.py --engine sim
"""

from typing import Literal

import agentkv as akv

CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Kenya": "Nairobi"}


@akv.tool(read_only=True, idempotent=True)
async def capital_of(country: Literal["France", "Japan", "Kenya"]) -> str:
    """The capital of a country.

    Args:
        country: The country's English name.
    """
    return f"The capital of {country} is {CAPITALS[country]}."


agent = akv.Agent(
    "guide",
    instructions="You are a travel guide. Look capitals up with your tool, then answer in one short sentence.",
    tools=[capital_of],
    max_tokens=48,
)

prompt = "What is the capital of France?"

# What the simulated model says, turn by turn; a real model decides for itself.
script = akv.testing.Script(
    [akv.testing.call("capital_of", country="France"), akv.testing.say("The capital of France is Paris.")]
)

if __name__ == "__main__":
    result = akv.run_sync(agent, prompt, engine="vllm")
    print(result.output)
    print(result.kv.text())
