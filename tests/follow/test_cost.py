"""When a prefetch is worth its share of a step."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import Load, StepTimes, most_at_once, next_prefill, pays

# What was measured of an 8B model on one H200, and of a 135M model on two cores.
GPU = StepTimes(base_s=0.00486, decode_seq_s=0.000139, launch_s=0.010, token_s=1 / 30_000)
CPU = StepTimes(base_s=0.035, decode_seq_s=0.005, launch_s=0.0, token_s=1 / 450)
IDLE = Load()

loads = st.builds(Load, asked=st.integers(0, 3), decoding=st.integers(0, 200))
seconds = st.floats(0, 1)
times = st.builds(StepTimes, base_s=seconds, decode_seq_s=seconds, launch_s=seconds, token_s=seconds)
tokens = st.integers(0, 10_000)


@given(load=loads, times=times, missing=tokens, block=st.integers(1, 128), step=st.integers(1, 4096), offered=tokens)
def test_it_is_whole_blocks_within_the_step_or_nothing(
    load: Load, times: StepTimes, missing: int, block: int, step: int, offered: int
) -> None:
    now = next_prefill(load, times, missing, block=block, step=step, offered=offered)
    assert now % block == 0
    assert now <= min(missing, max(step, block))
    if missing >= block and load == IDLE:
        assert now > 0, "nobody is held up"


@given(load=loads, times=times, missing=tokens, offered=tokens)
def test_less_load_never_makes_it_wait(load: Load, times: StepTimes, missing: int, offered: int) -> None:
    less = Load(asked=0, decoding=load.decoding // 2)
    if next_prefill(load, times, missing, block=16, step=4096, offered=offered):
        assert next_prefill(less, times, missing, block=16, step=4096, offered=offered)


def test_a_small_prefetch_waits_on_a_gpu_that_decodes_for_many() -> None:
    busy = Load(decoding=37)
    assert next_prefill(busy, GPU, 300, block=16, step=4096) == 0
    assert next_prefill(Load(decoding=5), GPU, 4000, block=16, step=4096) == 4000
    assert next_prefill(busy, CPU, 300, block=32, step=256) == 256, "there a step is not dearer for a prefill in it"


def test_what_is_not_worth_a_step_alone_is_worth_one_together() -> None:
    busy = Load(decoding=10)
    assert next_prefill(busy, GPU, 400, block=16, step=8192) == 0
    assert next_prefill(busy, GPU, 400, block=16, step=8192, offered=4600) == 400


def test_nobody_who_waits_for_a_first_token_is_held_up() -> None:
    assert next_prefill(Load(asked=1), CPU, 4000, block=32, step=256) == 0


def test_in_auto_mode_a_saving_that_nobody_would_see_is_no_saving() -> None:
    assert not pays(IDLE, GPU, 16)
    assert pays(IDLE, GPU, 300)
    assert pays(IDLE, CPU, 32)


@given(load=loads, times=times, gap=seconds, most=st.integers(1, 10_000))
def test_together_they_take_no_more_than_the_step_would_or_than_there_is_time(
    load: Load, times: StepTimes, gap: float, most: int
) -> None:
    room = most_at_once(load, times, gap, most=most)
    assert 0 <= room <= most
    assert room * times.token_s <= max(times.step_s(load.decoding, 0), gap) + 1e-9
    assert room <= most_at_once(load, times, 2 * gap, most=most)


def test_what_goes_at_once_is_little_while_many_ask() -> None:
    often, rarely = (most_at_once(IDLE, GPU, gap, most=4096) for gap in (0.002, 0.4))
    assert often == int(GPU.step_s(0, 0) / GPU.token_s)
    assert rarely == int(0.3 * 0.4 / GPU.token_s)
    assert most_at_once(IDLE, GPU, inf, most=4096) == 4096
