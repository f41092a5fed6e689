from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


def prompt(seed: int, n: int) -> list[int]:
    return [(seed * 131 + i * 7 + i // 100) % 900 for i in range(n)]


def test_a_prefetch_in_flight_delays_a_resume_by_at_most_one_small_step(make_core: Make) -> None:
    core = make_core(blocks=600, longest=2048, batched=512, settings={"prefetch_step": 64})
    turn = core.one(prompt(1, 100), run="main", ttl=60.0)
    ahead = core.add(prompt(2, 1500), run="other", kind="prefill")
    assert [core.step().num_scheduled_tokens[ahead] for _ in range(3)] == [64, 64, 64]
    resume = core.add(prompt(1, 160), run="main", lease=turn["lease"], resume=True)
    step = core.step()
    assert step.num_scheduled_tokens == {resume: 60}, "the resume is whole in the first step after it came"
    core.run()
    assert core.finished >= {ahead, resume}
    assert core.one(prompt(2, 1500))["cached"] == 1496


def test_real_work_in_progress_gets_its_tokens_before_a_prefetch_that_began_earlier(make_core: Make) -> None:
    core = make_core(blocks=600, longest=2048, batched=64, settings={"prefetch_step": 16})
    core.add(prompt(1, 1500), run="r", kind="prefill")
    core.step()
    real = core.add(prompt(2, 300))
    assert [core.step().num_scheduled_tokens for _ in range(3)] == [{real: 64}] * 3


def test_prefetches_share_the_steps_tokens(make_core: Make) -> None:
    core = make_core(blocks=600, longest=2048, batched=512, settings={"prefetch_step": 64})
    names = [core.add(prompt(n, 100), run=f"r{n}", kind="prefill") for n in range(4)]
    for _ in range(3):
        planned = core.step().num_scheduled_tokens
        assert sum(planned.get(name, 0) for name in names) == 64


def test_resumes_go_before_cold_prompts_and_prefetches_last(make_core: Make) -> None:
    core = make_core(batched=8, sequences=2, blocks=200)
    core.add(prompt(9, 40), max_tokens=2, name="busy")
    core.step()
    core.add(prompt(1, 8), name="ahead", kind="prefill")
    core.add(prompt(2, 8), name="cold")
    core.add(prompt(3, 8), name="fresh", run="x")
    core.add(prompt(4, 8), name="later", run="y", resume=True, order=1)
    core.add(prompt(5, 8), name="resume", run="y", resume=True)
    assert [request.request_id for request in core.scheduler.waiting] == ["resume", "later", "cold", "fresh", "ahead"]


def test_a_resume_starts_before_a_long_cold_prompt_in_progress_goes_on(make_core: Make) -> None:
    core = make_core(blocks=400, longest=1024, batched=64)
    turn = core.one(prompt(1, 100), run="main", ttl=60.0)
    cold = core.add(prompt(2, 600))
    assert core.step().num_scheduled_tokens == {cold: 64}
    resume = core.add(prompt(1, 120), run="main", lease=turn["lease"], resume=True)
    assert core.step().num_scheduled_tokens == {resume: 20}
    assert core.step().num_scheduled_tokens == {cold: 32}
    core.drain()
    assert core.step().num_scheduled_tokens == {cold: 64}


def test_a_cold_prompt_is_overtaken_a_bounded_number_of_times(make_core: Make) -> None:
    core = make_core(settings={"max_overtakes": 2})
    core.add(prompt(1, 8), name="cold")
    for n in range(4):
        core.add(prompt(2 + n, 8), name=f"resume{n}", resume=True)
    order = [request.request_id for request in core.scheduler.waiting]
    assert order == ["resume0", "resume1", "cold", "resume2", "resume3"]


def test_a_preempted_prefetch_is_dropped_and_answered(make_core: Make) -> None:
    core = make_core(blocks=33, longest=128, batched=64, settings={"prefetch_step": 1})
    growing = core.add(prompt(2, 22), max_tokens=90)
    core.step()
    ahead = core.add(prompt(1, 60), run="r", kind="prefill")
    core.run()
    assert core.reports[ahead]["reason"] in ("preempted", "no room that a prefetch may take")
    assert len(core.outputs[growing]) == 90
    assert core.scheduler.kv.requests.prefetches == {}
    assert core.free == 32


def test_a_prefetch_stays_last_however_often_it_is_overtaken(make_core: Make) -> None:
    core = make_core(settings={"max_overtakes": 1})
    core.add(prompt(1, 8), name="ahead", kind="prefill")
    for n in range(3):
        core.add(prompt(2 + n, 8), name=f"cold{n}")
    assert [request.request_id for request in core.scheduler.waiting] == ["cold0", "cold1", "cold2", "ahead"]


def test_a_preempted_request_is_not_overtaken(make_core: Make) -> None:
    core = make_core()
    begun = core.add(prompt(1, 40), max_tokens=20, name="begun")
    core.step()
    core.drain()
    core.scheduler.reset_prefix_cache(reset_running_requests=True)
    core.add(prompt(2, 8), name="resume", resume=True)
    assert [request.request_id for request in core.scheduler.waiting] == [begun, "resume"]


def test_a_reset_that_preempts_everything_drops_prefetches(make_core: Make) -> None:
    core = make_core(settings={"prefetch_step": 8})
    ahead = core.add(prompt(1, 60), run="r", kind="prefill")
    core.step()
    core.drain()
    assert core.scheduler.reset_prefix_cache(reset_running_requests=True)
    core.run()
    assert core.reports[ahead]["reason"] == "preempted"


def test_real_work_that_needs_room_ends_a_prefetch_before_it_waits(make_core: Make) -> None:
    core = make_core(blocks=33, longest=128, batched=64, settings={"prefetch_step": 16})
    ahead = core.add(prompt(1, 100), run="r", kind="prefill")
    core.step()
    real = core.add(prompt(2, 120))
    assert real in core.step().num_scheduled_tokens
    core.run()
    assert core.reports[ahead]["reason"] == f"room for {real}"
    assert core.outputs[ahead] == []
    assert core.call("stats")["records"]["prefetch.drop"] == 1


def test_what_builds_on_a_prefetch_that_is_ended_for_it_revokes_no_more_than_it_needs(make_core: Make) -> None:
    core = make_core(blocks=33, longest=128, batched=64, settings={"prefetch_step": 16, "kv_pool_ratio": 1.0})
    core.one(prompt(2, 60), run="chain", ttl=60.0)
    ahead = core.add(prompt(1, 60), run="r", kind="prefill")
    core.step()
    # One block is missing beside the four of the prefetch; once that has ended, the four are the request's to keep.
    real = core.add(prompt(1, 72))
    assert core.step().num_scheduled_tokens == {real: 56}
    evicted = [each for each in core.call("events", after=0)["events"] if each["kind"] == "lease.evict"]
    assert [each["blocks"] for each in evicted] == [1]
    core.drain()
    assert core.reports[ahead]["reason"] == f"room for {real}"


def test_a_prefetch_that_has_tokens_in_a_step_is_not_dropped_in_it(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As when a request's grammar is ready only after the step's tokens were shared out.
    core = make_core(blocks=33, longest=128, batched=64, settings={"prefetch_step": 16})
    monkeypatch.setattr(core.scheduler, "_is_real_work", lambda _: False)
    ahead = core.add(prompt(1, 100), run="r", kind="prefill")
    core.step()
    real = core.add(prompt(2, 120))
    planned = core.step().num_scheduled_tokens
    assert planned == {ahead: 16}
    assert ahead in core.scheduler.requests
    monkeypatch.undo()
    assert real in core.step().num_scheduled_tokens


def test_real_work_gets_the_place_of_a_prefetch_in_a_full_batch(make_core: Make) -> None:
    core = make_core(sequences=1, settings={"prefetch_step": 4})
    ahead = core.add(prompt(1, 60), run="r", kind="prefill")
    core.step()
    real = core.add(prompt(5, 20))
    assert real in core.step().num_scheduled_tokens
    core.run()
    assert core.reports[ahead]["reason"] == "its place in the batch was needed"


def test_a_prefetch_displaces_speculative_leases_only(make_core: Make) -> None:
    core = make_core(blocks=41, settings={"kv_pool_ratio": 1.0}, longest=160)
    core.one(prompt(1, 80), run="chain", ttl=60.0)
    core.one(prompt(2, 40), run="guess", lease_class="speculative", ttl=60.0)
    assert core.one(prompt(3, 60), run="ahead", kind="prefill", ttl=0.0)["reason"] == "ttl: 0 asks for no lease"
    assert {e["run"] for e in core.call("events", after=0)["events"] if e["kind"] == "lease.evict"} == {"guess"}
    assert core.one(prompt(4, 140), run="ahead", kind="prefill")["reason"] == "no room that a prefetch may take"
    # One that finds no room in any case displaces nothing.
    assert core.call("stats")["leases_by_class"] == {"chain": 1, "speculative": 1}


def test_the_branch_prefetch_limit_holds_per_run(make_core: Make) -> None:
    core = make_core(settings={"branch_prefetch_limit": 2})
    names = [core.add(prompt(n, 20), run="r", kind="prefill") for n in range(4)]
    other = core.add(prompt(9, 20), run="other", kind="prefill")
    core.run()
    refused = [name for name in names if "branch_prefetch_limit" in (core.reports[name]["reason"] or "")]
    assert refused == names[2:]
    assert core.reports[other]["lease"] is not None


def test_under_vllms_priority_policy_there_are_no_prefetches(make_core: Make) -> None:
    core = make_core(policy="priority")
    report = core.one(prompt(1, 20), run="r", kind="prefill")
    assert report["reason"] == "prefetches need the fcfs scheduling policy"
    assert core.call("info")["capabilities"]["order"].startswith("off")
    assert core.one(prompt(2, 40), run="r")["lease"] is not None


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_prefetch_alone_runs_to_its_end_and_leaves_its_lease(make_core: Make, asynchronous: bool) -> None:
    core = make_core(asynchronous=asynchronous, blocks=600, longest=2048, batched=512, settings={"prefetch_step": 32})
    report = core.one(prompt(1, 400), run="r", kind="prefill", ttl=60.0)
    assert (report["blocks"], report["cached"]) == (100, 0)
