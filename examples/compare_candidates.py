"""Three candidates on one trunk, a judge, and the winner goes on as the main chain.

The plan is written once; each candidate starts on its KV. While the last one is written, what is known of the judge's
prompt is prefilled, if that is 128 tokens or more: it is with this script, on a real model it depends on how much the
candidates say (``--kv-transfer-mode bidirectional`` prefills less than that, too). When the winner goes on, less than
a block of its chain is computed again, and the losers' KV is given back at once.

    agentkv run examples/compare_candidates.py --engine sim        or --engine vllm, on the demo model
"""

import agentkv as akv

mechanic = akv.Agent(
    "mechanic",
    instructions="You keep a parcel sorting hall running. Say what you would do, in few sentences.",
    max_tokens=96,
)
critic = akv.Agent(
    "critic", instructions="You pay for what breaks. Choose the repair that you would pay for.", max_tokens=48
)

graph = akv.Graph("repair")
plan = graph.plan("plan", mechanic)
candidates = graph.fork(
    "candidates",
    {
        "cheap": "Propose the cheapest repair that lasts until Christmas.",
        "safe": "Propose the repair that is least likely to fail.",
        "fast": "Propose the repair that has the belt running soonest.",
    },
)
best = graph.join("best", candidates, akv.winner(judge=critic))
order = graph.replan("order", mechanic, instruction="Write the order to the workshop.")
graph.path(akv.START, plan, candidates)
graph.path(best, order, akv.END)

prompt = "The main belt slips whenever it carries more than two hundred parcels. It is the last week of November."

# What the simulated model says on the main chain and in each branch; a real model decides for itself.
script = akv.testing.Script(
    {
        "": [
            akv.testing.say(
                "The belt has lost its tension, or its drum is worn. Both can be seen once it stands still."
            ),
            akv.testing.say("To the workshop: tension the belt tonight, and have a new drum here by the eighth."),
        ],
        "candidates.cheap": [
            akv.testing.say("Tension the belt again and powder the drum. That is an hour's work, twice.")
        ],
        "candidates.safe": [
            akv.testing.say(
                "Replace belt and drum together, on two nights. Until then carry a hundred and fifty parcels at most."
            )
        ],
        "candidates.fast": [
            akv.testing.say("Tension the belt tonight, order the drum now, and change it on the eighth.")
        ],
        "best.judge": [akv.testing.label("fast", "The hall runs tomorrow, and the drum is replaced before Christmas.")],
    }
)
