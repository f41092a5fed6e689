"""The four questions, each answered yes, no and not at all."""

from typing import Any

import pytest
from attrs import evolve

from agentkv.report import Advice, Ahead, Demand, Memory, advise

HALF = Ahead(tokens=800, certain=0.5, guessable=0.0, followed=True)
ROOMY = Memory(total=100, kv=50, pool_tokens=100_000, leasable_tokens=85_000)


def demand(**changed: Any) -> Demand:
    fields = {
        "source": "made up",
        "chains": 10,
        "prompts": 40,
        "prompt_mean": 6000.0,
        "longest": 9000,
        "reusable": 0.9,
        "branches": 2,
        "trunk": 2000,
        "working_set": 60_000,
        "timed": True,
        "waiting": 0.2,
        "ahead": HALF,
        "tool": 1.5,
    }
    return Demand(**{**fields, **changed})


def given(memory: Memory | None = ROOMY, **changed: Any) -> Advice:
    return advise(demand(**changed), memory)


def verdicts(advice: Advice) -> list[str]:
    return [answer.verdict for answer in advice.answers]


def test_long_prompts_that_are_used_again_and_waited_for_pay() -> None:
    advice = given()
    assert verdicts(advice) == ["yes", "no", "yes", "yes"]
    assert advice.verdict.startswith("Pays: ")
    assert advice.answers[0].reason == (
        "mean prompt 6,000 tokens in 40 prompts, 90% of them at the front of an earlier prompt"
    )
    assert "50% of the device, 100,000 tokens" in advice.answers[2].reason
    assert "20.0% of the recorded time" in advice.answers[3].reason
    assert advice.settings["KVConfig.kv_transfer_mode"] == ("bidirectional", "tools take 1.5 s: time to prefill in")
    assert advice.settings["Runtime.run(working_set=...)"][0] == 9000


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"prompt_mean": 3000.0}, "prompts are short"), ({"reusable": 0.49}, "prompts have little in common")],
)
def test_short_or_unlike_prompts_do_not_pay(changed: dict[str, Any], why: str) -> None:
    advice = given(**changed)
    assert verdicts(advice)[0] == "no"
    assert advice.verdict == f"Does not pay: {why}. Plain prefix caching does."
    assert advice.settings["KVConfig.kv_transfer_mode"] == ("prefix", why)
    assert given(**changed, branches=4).verdict.startswith(f"Pays in part: {why}")


def test_many_branches_are_four_or_more() -> None:
    assert verdicts(given(branches=4))[1] == "yes"
    assert given(branches=4).answers[1].reason == "4 of 10 chains go on from one prefix of 2,000 tokens"
    assert "no two share" in given(branches=1).answers[1].reason
    assert verdicts(given(branches=None))[1] == "cannot tell"


@pytest.mark.parametrize("memory", [Memory(total=100, kv=19, pool_tokens=100_000, leasable_tokens=9), None])
def test_without_a_fifth_of_the_memory_there_is_no_room(memory: Memory | None) -> None:
    advice = given(memory)
    assert verdicts(advice)[2] == ("no" if memory else "cannot tell")
    if memory is None:
        assert advice.verdict.endswith("Missing: --model and --memory.")
        assert "60,000 tokens at one time" in advice.answers[2].reason
        assert "if all its chains ran at once" in given(None, timed=False).answers[2].reason
    else:
        assert advice.verdict.startswith("Not yet: make room for KV")


def test_a_chain_that_is_longer_than_the_pool_does_not_fit() -> None:
    assert verdicts(given(longest=100_001))[2] == "no"


def test_the_ratio_lets_leases_hold_the_longest_chain() -> None:
    assert "EngineKV.kv_pool_ratio" not in given().settings
    assert given(longest=90_000).settings["EngineKV.kv_pool_ratio"][0] == 0.9


def test_admission_says_how_the_working_set_stands_to_the_pool() -> None:
    assert given().settings["EngineKV.admission"] == ("auto", "the working set is 60% of the pool: nothing will wait")
    assert "2.5 times the pool" in given(working_set=250_000).settings["EngineKV.admission"][1]


def test_first_tokens_that_are_not_waited_for_need_no_prefilling_ahead() -> None:
    advice = given(waiting=0.04)
    assert verdicts(advice)[3] == "no"
    assert advice.verdict.startswith("Pays in part: first tokens are hardly waited for")
    assert advice.settings["KVConfig.kv_transfer_mode"][0] == "prefix"


def test_what_was_not_recorded_is_missing() -> None:
    advice = given(waiting=None, reusable=None)
    assert verdicts(advice) == ["cannot tell", "no", "yes", "cannot tell"]
    assert "a journal (agentkv run --store sqlite:PATH)" in advice.verdict
    assert verdicts(given(reusable=None, prompt_mean=100.0))[0] == "no"


def test_the_mode_goes_by_how_long_tools_take() -> None:
    modes = [given(tool=tool).settings["KVConfig.kv_transfer_mode"][0] for tool in (0.049, 0.05)]
    assert modes == ["prefix", "bidirectional"]
    # No tool: what is known early is so while branches run.
    assert given(tool=None).settings["KVConfig.kv_transfer_mode"] == (
        "bidirectional",
        "branches run: time to prefill in",
    )


def test_where_nothing_is_known_early_nothing_is_to_be_prefilled_ahead() -> None:
    advice = given(ahead=evolve(HALF, certain=0.09))
    assert verdicts(advice)[3] == "no"
    assert "of 800 tokens computed behind tools and branches 9% were known before" in advice.answers[3].reason
    assert advice.answers[3].missing == ""
    assert advice.verdict.startswith("Pays in part: next to nothing of what first tokens wait for is known earlier")
    assert advice.settings["KVConfig.kv_transfer_mode"][0] == "prefix"
    advice = given(ahead=evolve(HALF, tokens=0, certain=0.0))
    assert "no tool and no branch ran" in advice.answers[3].reason


def test_streams_that_were_not_recorded_are_missing() -> None:
    advice = given(ahead=evolve(HALF, certain=0.0, followed=False))
    assert verdicts(advice)[3] == "no"
    assert "arrived in pieces" in advice.answers[3].missing
    assert advice.settings["KVConfig.kv_transfer_mode"][0] == "auto"


def test_repeated_calls_are_worth_guessing_at() -> None:
    advice = given(ahead=evolve(HALF, certain=0.0, guessable=0.3))
    assert verdicts(advice)[3] == "yes"
    assert "30% more could be guessed" in advice.answers[3].reason
    value, reason = advice.settings["KVConfig.kv_transfer_mode"]
    assert (value, "read_only=True" in reason) == ("bidirectional", True)


def test_what_was_known_early_may_not_have_been_recorded() -> None:
    advice = given(ahead=None)
    assert verdicts(advice)[3] == "cannot tell"
    assert advice.verdict.endswith("Missing: what was known while tools ran: a journal.")
    assert advice.settings["KVConfig.kv_transfer_mode"] == ("auto", "what was known while tools ran was not recorded")
