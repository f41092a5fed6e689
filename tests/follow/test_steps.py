"""How far a prefetch step goes."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import follows, next_step

sizes = st.integers(0, 5000)


@given(resident=sizes, known=sizes, block=st.integers(1, 128), step=st.integers(1, 512))
def test_a_step_ends_on_a_block_and_within_what_is_known(resident: int, known: int, block: int, step: int) -> None:
    end = next_step(resident, known, block, step)
    if end is None:
        assert known // block <= resident // block
        return
    assert end % block == 0
    assert resident // block * block < end <= known
    assert end - resident // block * block <= max(block, step)


@given(resident=sizes, known=sizes, block=st.integers(1, 128), step=st.integers(1, 512))
def test_steps_reach_every_whole_block(resident: int, known: int, block: int, step: int) -> None:
    while (end := next_step(resident, known, block, step)) is not None:
        assert end > resident
        resident = end
    assert resident // block >= known // block


def test_modes() -> None:
    assert follows("bidirectional", 1)
    assert not follows("prefix", 10_000)
    assert not follows("off", 10_000)
    assert follows("auto", 2000)
    assert not follows("auto", 40)
