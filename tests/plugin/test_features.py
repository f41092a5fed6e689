"""What users switch on or off in vLLM besides, under managed KV."""

from collections.abc import Callable
from typing import Any

from vllm.v1.request import RequestStatus

Make = Callable[..., Any]
DRAFTS = [1, 2, 3, 4]


def prompt(name: int, tokens: int) -> list[int]:
    return [name * 100 + place for place in range(tokens)]


def step_with_drafts(core: Any) -> dict[str, int]:
    """One step in which all that decode check drafts; none is right. Tokens by request."""
    core.drain()
    for request in core.scheduler.requests.values():
        if request.status == RequestStatus.RUNNING and request.num_output_tokens:
            request.spec_token_ids = [*DRAFTS]
    found: dict[str, int] = core.plan().num_scheduled_tokens
    return found


def test_who_checks_drafts_is_nobodys_cold_prompt(make_core: Make) -> None:
    core = make_core(asynchronous=False, blocks=200)
    core.scheduler.num_spec_tokens = core.scheduler.num_lookahead_tokens = len(DRAFTS)
    decoding = [core.add(prompt(name, 3), max_tokens=30) for name in range(8)]
    for _ in range(3):
        step_with_drafts(core)
    # A crowd gets half of each step, 32 tokens; those that decode take 40 before it.
    core.add(prompt(8, 3), max_tokens=30, run="r")
    cold = [core.add(prompt(20 + number, 90)) for number in range(4)]
    tokens = step_with_drafts(core)
    assert {name: tokens.get(name) for name in decoding} == dict.fromkeys(decoding, 1 + len(DRAFTS))
    assert sum(tokens.get(name, 0) for name in cold) == 64 - 40 - 3
    core.run()
    assert core.scheduler.kv.errors == {}


def test_drafts_are_no_prompt_tokens_in_what_steps_are_seen_to_take(make_core: Make) -> None:
    core = make_core(asynchronous=False)
    core.scheduler.num_spec_tokens = core.scheduler.num_lookahead_tokens = len(DRAFTS)
    core.add(prompt(1, 3), max_tokens=30, run="r")
    for _ in range(20):
        step_with_drafts(core)
    core.run()
    assert core.scheduler.kv.shares.cost.per_token() is None, "a single step had more than one token of a prompt"


def test_without_chunked_prefill_prompts_are_computed_whole(make_core: Make) -> None:
    core = make_core(chunked=False, batched=64, longest=64, blocks=200, settings={"prefetch_step": 16})
    core.add(prompt(1, 3), max_tokens=40, run="r")
    core.step()
    cold = [core.add(prompt(name, 40)) for name in (2, 3, 4)]
    steps: list[dict[str, int]] = []
    core.on_step.append(lambda step: steps.append(step.num_scheduled_tokens))
    while not core.finished >= set(cold):
        core.step()
    ahead = core.add(prompt(5, 40), run="r", kind="prefill")
    core.run()
    for name in (*cold, ahead):
        assert [step[name] for step in steps if name in step] == [40]
