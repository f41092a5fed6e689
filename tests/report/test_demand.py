"""Figures of workloads that are small enough to be summed up by hand; blocks of 512 tokens unless said."""

from typing import Any

import pytest

from agentkv.report import Demand, RecordedPrompt, demand_of

BLOCK = 512


def prompt(chain: str, *keys: int, tail: int = 0, output: int = 0, **more: Any) -> RecordedPrompt:
    return RecordedPrompt(chain=chain, tokens=len(keys) * BLOCK + tail, output=output, keys=keys, **more)


def demand(*prompts: RecordedPrompt) -> Demand:
    return demand_of("made up", prompts, block_size=BLOCK)


def test_what_stands_at_the_front_of_an_earlier_prompt_can_be_used_again() -> None:
    found = demand(prompt("a", 1, 2), prompt("b", 1, 3), prompt("a", 1, 2, 4, 5))
    assert found.reusable == (0 + 1 + 2) / (2 + 2 + 4)
    assert (found.chains, found.prompts, found.prompt_mean) == (2, 3, 8 / 3 * BLOCK)


def test_chains_that_go_on_from_a_prefix_are_its_branches() -> None:
    four = [prompt(name, 1, 2, place) for place, name in enumerate("abcd", 10)]
    found = demand(*four, prompt("e", 1))
    assert (found.branches, found.trunk) == (4, 2 * BLOCK)
    # Prompts of one chain are no branches, however they differ.
    found = demand(prompt("a", 1, 2), prompt("a", 1, 3))
    assert (found.branches, found.trunk) == (1, 2 * BLOCK)
    assert demand(prompt("a", tail=9)).branches == 1


def test_the_longest_chain_counts_its_answer() -> None:
    assert demand(prompt("a", 1, tail=7, output=3), prompt("b", 1, output=4)).longest == BLOCK + 10


def test_without_times_all_chains_are_held_at_once_and_what_they_share_once() -> None:
    found = demand(prompt("a", 1), prompt("a", 1, 2, tail=5, output=2), prompt("b", 1, 3, output=4))
    assert found.working_set == 3 * BLOCK + 7 + 4
    assert not found.timed


def test_with_times_only_what_is_alive_together_is_held() -> None:
    first = prompt("a", 1, 2, at=0.0, end=1.0)
    later = prompt("b", 1, 3, at=2.0, end=3.0)
    assert demand(first, later).working_set == 2 * BLOCK
    assert demand(first, prompt("a", 1, 2, at=5.0, end=6.0), later).working_set == 3 * BLOCK
    assert demand(first, later).timed


def test_waiting_is_a_share_of_generations_and_tools() -> None:
    timed = prompt("a", 1, at=10.0, end=12.0, wait=1.0, tool=2.0)
    found = demand(timed, prompt("a", 1, 2, at=20.0, end=24.0, wait=1.0), prompt("a", 1, at=30.0, end=99.0))
    assert found.waiting == (1 + 1) / (4 + 4)
    assert found.tool == 2.0
    assert demand(prompt("a", 1)).waiting is None
    assert demand(prompt("a", 1)).tool is None


def test_counts_of_an_engine_stand_in_for_keys() -> None:
    bare = RecordedPrompt(chain="a", tokens=1000, output=10, reused=0)
    found = demand(bare, RecordedPrompt(chain="a", tokens=3000, output=10, reused=1010))
    assert found.reusable == pytest.approx(1010 / 4000)
    assert found.branches is None
    assert found.working_set == 3010
    assert demand(RecordedPrompt(chain="a", tokens=9, output=1)).reusable is None


def test_forks_that_were_recorded_stand_in_for_keys() -> None:
    def branch(chain: str, fork: str | None, reused: int) -> RecordedPrompt:
        return RecordedPrompt(chain=chain, tokens=1000, output=10, reused=reused, fork=fork)

    found = demand(branch("m", None, 0), branch("a", "f", 900), branch("b", "f", 800), branch("c", "g", 100))
    assert (found.branches, found.trunk) == (2, 800)
