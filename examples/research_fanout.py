"""A lead agent lists questions, sub-agents look into them, and all notes come back into the lead's chain.

The sub-agents have an anchor and a conversation of their own. Their notes enter the writer's prompt in the order of
the questions; while others still work, what is known of it is prefilled, if that is 128 tokens or more. With this
script it never is, since the first question takes the longest, and its note is the first to enter.
``--kv-transfer-mode bidirectional`` has no such bound and prefills the 64 tokens in front of the notes.

    agentkv run examples/research_fanout.py --engine sim        or --engine vllm, on the demo model
"""

from typing import Literal

from pydantic import BaseModel, Field

import agentkv as akv

Harbour = Literal["Bergen", "Brest", "Gdansk"]
TIDES = {"Bergen": 0.9, "Brest": 6.1, "Gdansk": 0.1}
RAIN = {"Bergen": 2250, "Brest": 1210, "Gdansk": 540}
DEPTH = {"Bergen": 11.0, "Brest": 13.5, "Gdansk": 16.5}


@akv.tool(read_only=True)
async def harbour_facts(ctx: akv.Context[None], harbour: Harbour) -> str:
    """What the pilots' handbook says about a harbour.

    Args:
        harbour: Its name.
    """
    await ctx.sleep(0.5 * len(harbour))
    return (
        f"{harbour}: mean tidal range {TIDES[harbour]} m, rain {RAIN[harbour]} mm a year, "
        f"depth at the container quay {DEPTH[harbour]} m."
    )


class Plan(BaseModel):
    """What is to be looked into; the model can list neither nothing nor what nobody knows."""

    harbours: list[Harbour] = Field(min_length=2, max_length=3)


lead = akv.Agent(
    "lead", instructions="You plan where ships of 12 m draught go. List the harbours to look into.", output=Plan
)
pilot = akv.Agent(
    "pilot", instructions="Look a harbour up, then say whether it will do.", tools=[harbour_facts], max_tokens=64
)
writer = akv.Agent("writer", instructions="Write one sentence that decides.", max_tokens=64)


def listed(plan: Plan) -> list[str]:
    """Each harbour once, however often a small model lists it."""
    return [*dict.fromkeys(plan.harbours)]


def question(harbour: str) -> str:
    """What a sub-agent is asked."""
    return f"Will {harbour} do for a ship of 12 m draught?"


graph = akv.Graph("harbours")
plan = graph.plan("plan", lead)
notes = graph.spawn("notes", pilot, over=listed, prompt=question, limit=3, on_error="collect")
report = graph.join("report", notes, akv.all_of(at_least=1, timeout=120))
graph.path(akv.START, plan, notes)
graph.path(report, graph.replan("write", writer), akv.END)

prompt = "Which of Bergen, Brest and Gdansk takes our ship at any tide?"


def look(harbour: str, verdict: str) -> list[akv.testing.ScriptedTurn]:
    """What a simulated sub-agent says."""
    return [akv.testing.call("harbour_facts", harbour=harbour), akv.testing.say(verdict)]


# What the simulated model says on the main chain and in each branch; a real model decides for itself.
script = akv.testing.Script(
    {
        "": [
            akv.testing.say('{"harbours": ["Bergen", "Brest", "Gdansk"]}'),
            akv.testing.say("Gdansk takes the ship at any tide; Brest does above half tide, Bergen never."),
        ],
        "notes.Bergen": look("Bergen", "No: 11 m at the quay, and the tide adds less than a metre to that."),
        "notes.Brest": look("Brest", "Yes, but with 13.5 m and a range of 6.1 m not at every low water."),
        "notes.Gdansk": look("Gdansk", "Yes: 16.5 m at the quay, and next to no tide."),
    }
)
