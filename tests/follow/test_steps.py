"""What there is to prefill ahead."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import follows, missing_tokens

sizes = st.integers(0, 5000)


@given(resident=sizes, known=sizes, block=st.integers(1, 128))
def test_what_is_missing_is_whole_blocks_up_to_the_last_that_is_known(resident: int, known: int, block: int) -> None:
    missing = missing_tokens(resident, known, block)
    assert missing % block == 0
    assert missing >= 0
    if missing:
        assert resident // block * block + missing == known // block * block


def test_modes() -> None:
    assert follows("bidirectional", 1)
    assert not follows("prefix", 10_000)
    assert not follows("off", 10_000)
    assert follows("auto", 2000)
    assert not follows("auto", 40)
