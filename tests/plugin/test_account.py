"""The scheduler's sums against the tokens that steps really contain."""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

Make = Callable[..., Any]


class Truth:
    """Counts, step by step, the tokens of prompts, and those that were computed before and lost."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.reached: defaultdict[str, int] = defaultdict(int)
        self.tokens = 0
        core.on_step.append(self.step)

    def step(self, step: Any) -> None:
        starts = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for name, count in step.num_scheduled_tokens.items():
            prompt = self.core.scheduler.requests[name].num_prompt_tokens
            start, end = starts[name], starts[name] + count
            self.tokens += max(0, min(end, max(prompt, self.reached[name])) - start)
            self.reached[name] = max(self.reached[name], end)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_computed_token_is_in_one_of_the_sums(make_core: Make, asynchronous: bool, seed: int) -> None:
    random = Random(seed)
    core = make_core(blocks=40, batched=48, longest=200, asynchronous=asynchronous)
    truth = Truth(core)
    asked: list[str] = []
    for number in range(60):
        tokens = [random.randrange(900) for _ in range(8)] if random.random() < 0.5 else list(range(8))
        tokens += [random.randrange(900) for _ in range(random.randrange(60))]
        kind = random.choice(("generate", "prefill"))
        most = 1 if kind == "prefill" else random.randint(1, 40)
        asked.append(core.add(tokens, max_tokens=most, run=f"r{number % 5}", kind=kind, ttl=0.0))
        for _ in range(random.randrange(6)):
            if core.scheduler.has_requests():
                core.step()
        if random.random() < 0.3:
            core.abort(random.choice(asked))
    core.run()
    stats = core.call("stats")
    work = stats["work"]
    assert stats["errors"] == {}
    assert work["answered"]["computed"] + work["unanswered"]["computed"] + work["recomputed"] == truth.tokens
    assert work["answered"]["requests"] + work["unanswered"]["requests"] == len(asked)
    assert work["answered"]["computed"] > 0
    assert work["unanswered"]["computed"] > 0


def test_no_account_is_opened_for_a_stranger_that_starts_again(make_core: Make) -> None:
    core = make_core()
    core.add(list(range(20)), max_tokens=9, run="r")
    core.add(list(range(100, 120)), max_tokens=9)
    core.step()
    core.drain()
    assert core.scheduler.reset_prefix_cache(reset_running_requests=True)
    core.run()
    assert core.call("stats")["work"]["recomputed"] > 0
    assert core.scheduler.kv.policy.work._open == {}


def test_occupancy_adds_up_to_the_pool(make_core: Make) -> None:
    core = make_core(blocks=64)
    core.one(list(range(40)), run="a", ttl=60.0)
    core.one(list(range(500, 520)), run="b", ttl=60.0, kind="prefill", lease_class="speculative")
    core.one(list(range(700, 740)), run="c", ttl=0.0)
    core.add(list(range(800, 830)), max_tokens=20, run="d")
    core.step()
    found = core.call("occupancy")
    assert found == {"anchor": 0, "chain": 10, "branch": 0, "speculative": 5, "running": 8, "cached": 10, "free": 30}
    assert sum(found.values()) == core.call("stats")["pool_blocks"]
