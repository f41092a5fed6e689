"""Guessers are believed by what came of their guesses."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import PredictedResult, Trust, Trusts


def judged(trust: Trust, *pairs: tuple[str, str]) -> list[bool]:
    """For each pair of guess and result, whether the guess would have been prefilled."""
    found = []
    for guess, result in pairs:
        found.append(trust.enough("tool", "poll"))
        trust.judge("tool", PredictedResult("poll", guess), result)
    return found


def test_a_guesser_is_believed_until_it_is_wrong_and_again_once_it_is_right() -> None:
    wrong, right = ("one thing", "another"), ("the same", "the same")
    assert judged(Trust(), right, right, right) == [True] * 3
    assert judged(Trust(), wrong, wrong, wrong) == [True, False, False]
    recovering = judged(Trust(), *[wrong] * 20, *[right] * 4)
    assert recovering[1:21] == [False] * 20
    assert recovering[-1]


def test_half_right_is_right_enough_and_a_word_of_many_is_not() -> None:
    assert judged(Trust(), *[("abcdefgh", "abcdxyzu")] * 3) == [True] * 3
    assert judged(Trust(), *[("a" + "b" * 40, "a" + "c" * 40)] * 3) == [True, False, False]


def test_an_empty_result_can_be_guessed() -> None:
    assert judged(Trust(), ("", ""), ("", "")) == [True, True]
    assert judged(Trust(), ("", "words"), ("", "words")) == [True, False]


def test_tools_sources_and_tenants_are_judged_apart() -> None:
    trusts = Trusts()
    judged(trusts.of("one"), ("a", "b"))
    assert not trusts.of("one").enough("tool", "poll")
    assert trusts.of("one").enough("tool", "memo")
    assert trusts.of("one").enough("other", "poll")
    assert trusts.of("two").enough("tool", "poll")


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_guess_that_equals_the_result_is_never_held_against_its_guesser(text: str, other: str) -> None:
    trust = Trust()
    judged(trust, (text, text))
    assert trust.enough("tool", "poll")
    judged(trust, (other, other))
    assert trust.enough("tool", "poll")
