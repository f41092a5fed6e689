"""What comes next, how likely, and what of it is worth prefilling first."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import GUESS, NextStep, Transitions, chances, most_valuable, reached, room_price

names = st.sampled_from("abcd")


@st.composite
def declared(draw: st.DrawFn) -> dict[str, float]:
    """Chances of ways on that add up to 1."""
    weights = draw(st.dictionaries(names, st.floats(0.01, 1), min_size=1))
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


steps = st.lists(st.builds(NextStep, names, st.floats(0, 1), st.integers(0, 10_000)))
graphs = st.fixed_dictionaries({name: declared() for name in "abcd"})


@given(declared(), st.dictionaries(names, st.integers(0, 1000)))
def test_chances_add_up_and_move_from_what_is_declared_to_what_was_seen(
    given: dict[str, float], seen: dict[str, int]
) -> None:
    found = chances(given, seen)
    assert found.keys() == given.keys()
    assert sum(found.values()) == pytest.approx(1)
    runs = sum(seen.get(name, 0) for name in given)
    for name, chance in found.items():
        share = seen.get(name, 0) / runs if runs else given[name]
        assert min(share, given[name]) - 1e-9 <= chance <= max(share, given[name]) + 1e-9


@given(declared(), names, st.integers(1, 100))
def test_a_way_that_is_gone_becomes_likelier_and_no_other_does(given: dict[str, float], way: str, times: int) -> None:
    before, after = chances(given, {}), chances(given, {way: times})
    for name in given:
        assert after[name] >= before[name] - 1e-9 if name == way else after[name] <= before[name] + 1e-9


@given(graphs, names, st.sets(names), st.integers(0, 5))
def test_looking_further_ahead_finds_no_less_and_never_more_than_certainty(
    graph: dict[str, dict[str, float]], start: str, goals: set[str], within: int
) -> None:
    near, far = (reached(start, goals, graph.__getitem__, steps) for steps in (within, within + 1))
    assert 0 <= near <= far + 1e-9 <= 1 + 2e-9


def test_a_loop_comes_to_its_exit_in_the_end() -> None:
    ways: Mapping[str, Mapping[str, float]] = {"loop": {"loop": 0.5, "out": 0.5}, "out": {}}
    assert reached("loop", {"out"}, ways.__getitem__, 1) == 0.5
    assert reached("loop", {"out"}, ways.__getitem__, 3) == 0.875
    assert reached("out", {"loop"}, ways.__getitem__, 3) == 0


@given(steps, st.floats(0, 1), st.integers(0, 3))
def test_what_is_expected_to_save_most_comes_first_and_what_costs_more_is_left_out(
    given: list[NextStep], room: float, decoding: int
) -> None:
    found = most_valuable(given, GUESS, room, decoding)
    savings = [step.saving(GUESS, room, decoding) for step in found]
    assert savings == sorted(savings, reverse=True)
    assert all(saving > 0 for saving in savings)
    assert len(found) == sum(step.saving(GUESS, room, decoding) > 0 for step in given)
    assert all(step.probability > room for step in found)
    # A step that costs those who decode more than it may save is no offer, whatever its size.
    assert all(step.probability - room > decoding * (1 - step.probability) for step in found)


@given(st.floats(0, 1), st.integers(1, 1000), st.floats(0, 0.5))
def test_a_saving_grows_with_chance_and_shrinks_with_the_price_of_room(
    chance: float, missing: int, room: float
) -> None:
    step = NextStep("a", chance, missing)
    assert NextStep("a", min(1, chance + 0.1), missing).saving(GUESS, room) >= step.saving(GUESS, room)
    assert step.saving(GUESS, room + 0.1) < step.saving(GUESS, room)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_room_is_never_free_and_never_dearer_than_what_it_takes(declared_blocks: int, pool: int) -> None:
    price = room_price(declared_blocks, pool)
    assert room_price(0, None) <= price <= 1
    assert room_price(declared_blocks + 1, pool) >= price


def test_a_tenant_s_ways_are_that_tenant_s() -> None:
    seen = Transitions()
    seen.put("one", "graph", {})
    seen.add("one", "graph", {("a", "b"): 1, ("a", "c"): 1})
    seen.add("one", "graph", {("a", "b"): 1, ("b", "c"): 1})
    assert seen.after("one", "graph", "a") == {"b": 2, "c": 1}
    assert seen.after("two", "graph", "a") == seen.after("one", "other", "a") == {}
    seen.put("one", "graph", {("a", "b"): 50})
    assert seen.after("one", "graph", "a") == {"b": 2, "c": 1}
    seen.put("two", "graph", {("a", "b"): 50})
    assert seen.after("two", "graph", "a") == {"b": 50}


def test_a_way_that_a_run_went_more_than_once_counts_as_often() -> None:
    seen = Transitions()
    seen.put("", "graph", {("a", "b"): 3})
    seen.add("", "graph", {("a", "b"): 5})
    assert seen.after("", "graph", "a") == {"b": 8}


def test_a_run_does_not_stand_for_the_history_of_a_graph_that_was_forgotten() -> None:
    seen = Transitions()
    seen.put("", "graph", {("a", "b"): 50})
    for number in range(2000):
        seen.put("", str(number), {})
    seen.add("", "graph", {("a", "c"): 1})
    assert not seen.knows("", "graph")


def test_only_so_many_graphs_are_remembered() -> None:
    seen = Transitions()
    for number in range(2000):
        seen.put("", str(number), {("a", "b"): 1})
        seen.after("", "0", "a")
    assert seen.knows("", "0")
    assert not seen.knows("", "1")
    assert seen.knows("", "1999")
