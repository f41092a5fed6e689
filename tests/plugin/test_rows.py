"""Blocks as rows: the GPU's kernel, interpreted, does what torch does a region at a time."""

import importlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv.plugin import row_kernel
from agentkv.plugin.rows import PoolRows, pool_rows

BLOCKS = 7


@pytest.fixture(scope="module")
def kernel() -> object:
    """The module of the kernel, to be run without a GPU."""
    with pytest.MonkeyPatch.context() as env:
        env.setenv("TRITON_INTERPRET", "1")
        yield importlib.reload(row_kernel)
    importlib.reload(row_kernel)


def pool(widths: list[int], gap: int) -> list[torch.Tensor]:
    """Regions of these widths, with ``gap`` words between blocks."""
    return [torch.randint(1, 1 << 60, (BLOCKS, width + gap))[:, :width] for width in widths]


@given(
    widths=st.lists(st.sampled_from((1, 8, 96, 1025)), min_size=1, max_size=4),
    gap=st.sampled_from((0, 5)),
    blocks=st.lists(st.integers(0, BLOCKS - 1), unique=True),
)
def test_the_kernel_gathers_and_loads_as_torch_does(
    kernel: object, widths: list[int], gap: int, blocks: list[int]
) -> None:
    regions = pool(widths, gap)
    plain, fast = PoolRows(regions), kernel.KernelRows(regions)  # type: ignore[attr-defined]
    assert fast.words == plain.words == sum(widths)

    expected, rows = (torch.zeros((len(blocks), plain.words), dtype=torch.int64) for _ in range(2))
    plain.gather(blocks, expected)
    fast.gather(blocks, rows)
    assert torch.equal(rows, expected)

    memory = torch.randint(1, 1 << 60, (BLOCKS, plain.words))
    slots = [BLOCKS - 1 - block for block in blocks]
    twin = [region.clone() for region in regions]
    PoolRows(twin).load(blocks, memory, slots)
    fast.load(blocks, memory, slots)
    assert all(torch.equal(*pair) for pair in zip(regions, twin, strict=True))
    assert all(
        torch.equal(torch.cat([region[block] for region in twin]), memory[BLOCKS - 1 - block]) for block in blocks
    )


def test_without_a_gpu_torch_does_it() -> None:
    assert type(pool_rows(pool([8], 0))) is PoolRows
