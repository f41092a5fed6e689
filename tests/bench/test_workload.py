"""The seed workload: its lengths, its repeatability, its arithmetic."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.bench import SeedShape
from agentkv.errors import SetupError

Shape = Callable[..., SeedShape]


def drawn(shape: SeedShape) -> list[Any]:
    return [(p.starts_at, p.tools, p.anchor(), p.history(), p.result(0)) for p in shape.plans]


def test_the_seed_decides_everything(shape: Shape) -> None:
    assert drawn(shape()) == drawn(shape())
    assert drawn(shape(seed=2)) != drawn(shape())


def test_lengths_are_those_asked_for(shape: Shape) -> None:
    one = shape()
    for plan in one.plans:
        history = plan.history()
        assert len(plan.anchor()) == 300
        assert len(history) == 6
        assert {len(turn) for turn in history} == {150}
        assert len(plan.tools) == 3
        assert all(200 <= turn.tokens <= 300 and 1 <= turn.seconds <= 3 for turn in plan.tools)
        assert plan.end_tokens == 1200 + 4 * 24 + sum(turn.tokens for turn in plan.tools)
    assert len({turn.tokens for plan in one.plans for turn in plan.tools}) > 10
    assert one.longest == max(plan.end_tokens for plan in one.plans)


def test_agents_share_the_anchor_and_nothing_else(shape: Shape) -> None:
    plans = shape().plans
    assert len({plan.anchor() for plan in plans}) == 1
    assert len({plan.history()[0] for plan in plans}) == len(plans)
    assert len({plan.result(call) for plan in plans for call in range(3)}) == 3 * len(plans)


def test_agents_start_evenly(shape: Shape) -> None:
    assert [plan.starts_at for plan in shape(chains=4, start_spread=8).plans] == [0, 2, 4, 6]


def test_pieces_are_the_result(shape: Shape) -> None:
    plan = shape(result_pieces=7).plans[0]
    pieces = plan.pieces(1)
    assert len(pieces) == 7
    assert tuple(i for piece in pieces for i in piece) == plan.result(1)
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_the_working_set_counts_the_shared_part_once(shape: Shape) -> None:
    one = shape(chains=2, prompt_tokens=320, shared_tokens=100, result_tokens=(40, 40), output_tokens=10)
    # Each chain ends at 320 + 4 * 10 + 3 * 40 = 480 tokens: 15 blocks of 32, 3 of them full of the anchor.
    assert one.longest == 480
    assert one.shared_blocks(32) == 3
    assert one.blocks(32) == 3 + 2 * 12


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"chains": 0}, "chains=0 must be at least 1"),
        ({"start_spread": float("nan")}, "start_spread=nan must be at least 0"),
        ({"output_tokens": 0}, "output_tokens=0 must be at least 1"),
        ({"shared_tokens": 1198}, "prompt_tokens=1200 must be at least 1204: shared_tokens=1198, and one"),
        ({"result_tokens": (9, 8)}, "result_tokens=9:8 must be LO:HI"),
        ({"result_tokens": (3, 8), "result_pieces": 4}, "result_pieces=4 is more than result_tokens=3"),
    ],
)
def test_contradictions_are_refused(shape: Shape, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        shape(**numbers)
