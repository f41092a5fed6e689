"""Numbers with what they count."""

import pytest

from agentkv.counted import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "turn", "0 turns"), (1, "turn", "1 turn"), (2000, "branch", "2,000 branches"), (1.5, "agent", "1.5 agents")],
)
def test_a_plural_is_for_all_numbers_but_one(number: float, noun: str, text: str) -> None:
    assert counted(number, noun) == text
