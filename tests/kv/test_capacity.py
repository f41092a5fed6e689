"""Pools by arithmetic that can be checked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.errors import SetupError
from agentkv.kv import KVGroup, KVPool, LayerKind, bytes_per_token, pool_of, spec_bytes_per_token

GIB = 1 << 30


def full(layers: int = 32, kv_heads: int = 8, size: int = 128, window: int | None = None) -> LayerKind:
    return LayerKind(layers=layers, kv_heads=kv_heads, head_size=size, value_size=size, window=window)


def test_bytes_per_token_of_known_models() -> None:
    smollm2 = full(layers=30, kv_heads=3, size=64)
    llama_8b = full()
    assert bytes_per_token([smollm2], dtype_bytes=2) == 23_040
    assert bytes_per_token([llama_8b], dtype_bytes=2) == 131_072
    assert bytes_per_token([llama_8b], dtype_bytes=1) == 65_536


def test_tensor_parallel_divides_heads_and_replicates_the_last() -> None:
    one = bytes_per_token([full(layers=80)], dtype_bytes=2)
    assert bytes_per_token([full(layers=80)], dtype_bytes=2, tensor_parallel=4) == one // 4
    assert bytes_per_token([full(layers=80)], dtype_bytes=2, tensor_parallel=16) == one // 8


@pytest.mark.parametrize("tensor_parallel", [3, 12])
def test_heads_that_cannot_be_dealt_out_evenly_are_refused(tensor_parallel: int) -> None:
    with pytest.raises(SetupError, match=f"tensor_parallel={tensor_parallel} does not go with 8 KV heads"):
        full().heads_on_device(tensor_parallel)


def test_a_latent_vector_is_whole_on_each_device() -> None:
    latent = LayerKind(layers=61, kv_heads=1, head_size=576, value_size=0)
    for devices in (1, 2, 8, 16):
        assert bytes_per_token([latent], dtype_bytes=2, tensor_parallel=devices) == 61 * 576 * 2


def test_the_engines_own_specification_agrees_with_the_formula() -> None:
    page = 2 * 3 * 64 * 2 * 32
    assert spec_bytes_per_token([KVGroup(layers=30, page_bytes=page, block_size=32)]) == 23_040


def test_a_pool_holds_whole_blocks_less_the_engines_own() -> None:
    pool = pool_of([full()], pool_bytes=GIB, block_size=16, dtype_bytes=2)
    assert (pool.block_bytes, pool.blocks, pool.tokens) == (2_097_152, 511, 511 * 16)
    assert pool_of([full()], pool_bytes=2_097_152 * 2 - 1, block_size=16, dtype_bytes=2).blocks == 0


def pool(blocks: int, *windows: int | None, ratio: float = 1.0) -> KVPool:
    groups = tuple(KVGroup(layers=1, page_bytes=1, block_size=10, window=window) for window in windows or (None,))
    return KVPool(groups=groups, blocks=blocks, block_bytes=10, ratio=ratio)


def test_chains_share_the_whole_blocks_of_their_anchor() -> None:
    # 45 tokens are 5 blocks, of which 2 lie wholly in an anchor of 25, which takes 3 itself.
    assert pool(12).chains(prompt=45, anchor=25) == 3
    assert pool(11).chains(prompt=45, anchor=25) == 2
    assert pool(20, ratio=0.6).chains(prompt=45, anchor=25) == 3


def test_branches_share_the_whole_blocks_of_their_trunk() -> None:
    # 45 + 12 tokens are 6 blocks, of which 4 are the trunk's.
    assert pool(9).branches(prompt=45, branch=12) == 2
    assert pool(5 + 3 * 2).chains(prompt=45, branches=3, branch=12) == 1
    assert pool(2 * (5 + 3 * 2) - 1).chains(prompt=45, branches=3, branch=12) == 1
    assert pool(4).branches(prompt=45, branch=12) == 0


def test_anchors_are_counted_in_whole_blocks() -> None:
    assert pool(10).anchors(21) == 3
    assert pool(10).anchors(0) == 0


def test_layers_that_look_back_on_a_window_hold_no_more_than_that() -> None:
    group = KVGroup(layers=1, page_bytes=1, block_size=10, window=25)
    assert [group.blocks(tokens) for tokens in (10, 24, 33, 34, 1000)] == [1, 3, 4, 3, 3]
    assert group.shared(20, 24) == 2
    assert group.shared(20, 1000) == 0


def test_one_sequence_of_a_hybrid_model_is_bounded_by_its_full_layers_alone() -> None:
    assert pool(100, None, 25, 25).tokens == (100 - 3 - 3) * 10
    assert pool(100, 25, 25).tokens is None
    assert pool(4, 25, 25).tokens == 20


def test_kinds_of_layers_are_cut_into_groups_of_equally_many() -> None:
    gemma = [full(layers=10), full(layers=52, window=1024)]
    groups = pool_of(gemma, pool_bytes=GIB, block_size=16, dtype_bytes=2).groups
    assert [(group.layers, group.window) for group in groups] == [(10, None)] + 6 * [(10, 1024)]
    nearly_even = [full(layers=13), full(layers=12, window=128)]
    groups = pool_of(nearly_even, pool_bytes=GIB, block_size=16, dtype_bytes=2).groups
    assert [(group.layers, group.window) for group in groups] == [(13, None), (13, 128)]


def test_layers_of_unlike_size_are_refused() -> None:
    with pytest.raises(SetupError, match="unlike amounts"):
        pool_of([full(), full(size=256, window=9)], pool_bytes=GIB, block_size=16, dtype_bytes=2)


@given(
    blocks=st.integers(0, 500),
    windows=st.lists(st.one_of(st.none(), st.integers(1, 90)), min_size=1, max_size=4),
    prompt=st.integers(1, 300),
    anchor=st.integers(0, 300),
    branches=st.integers(0, 4),
    branch=st.integers(1, 60),
)
def test_what_is_said_to_fit_does_fit_and_one_more_does_not(
    blocks: int, windows: list[int | None], prompt: int, anchor: int, branches: int, branch: int
) -> None:
    anchor = min(anchor, prompt)
    some = pool(blocks, *windows)
    chains = some.chains(prompt=prompt, anchor=anchor, branches=branches, branch=branch)
    each = some.own(prompt, anchor) + branches * some.own(prompt + branch, prompt)
    assert chains == 0 or some.held(anchor) + chains * each <= blocks
    assert each == 0 or some.held(anchor) + (chains + 1) * each > blocks
    assert 0 <= some.own(prompt, anchor) <= some.held(prompt)
