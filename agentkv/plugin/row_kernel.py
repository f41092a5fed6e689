"""The rows of a pool by a Triton kernel: one launch to a copy, where torch needs two to a layer.

What launches take is the time of the worker's one thread, and the model's next step waits for it. Loads are read from
host memory by the kernel itself, on a few of the device's processors: a copy engine takes copies in turn, so that what
a step brings to the device would wait behind a load. ``benchmarks/gpu_copies.py`` measures both; docs/tier.md has the
figures.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from agentkv.plugin.rows import PoolRows

__all__ = ("KernelRows",)

# Programs, words at a time, warps. Four such programs read 33 GB/s on an H200 and slow a step of 2.2 ms by 3 %; eight
# read 44, and slow it by 30 %.
READ = (4, 4096, 16)
GATHER_WORDS, GATHER_WARPS = 1024, 4


class KernelRows(PoolRows):
    """``PoolRows`` whose regions lie on a CUDA device. Compiles what it needs when it is made.

    ``load`` asks for pinned memory.
    """

    def __init__(self, regions: Sequence[torch.Tensor]) -> None:
        super().__init__(regions)
        table = [
            [region.data_ptr() for region in self.regions],
            [region.stride(0) for region in self.regions],
            [span.start for span in self.spans],
            [span.stop - span.start for span in self.spans],
        ]
        self._table = torch.tensor(table, dtype=torch.int64, device=self.device)
        nowhere = torch.empty((0, self.words), dtype=torch.int64, device=self.device)
        self.gather((), nowhere)
        self.load((), nowhere, ())

    def gather(self, blocks: Sequence[int], rows: torch.Tensor) -> None:
        """As ``PoolRows``."""
        self._move(blocks, range(len(blocks)), rows, out=True)

    def load(self, blocks: Sequence[int], memory: torch.Tensor, slots: Sequence[int]) -> None:
        """As ``PoolRows``."""
        self._move(blocks, slots, memory, out=False)

    def _move(self, blocks: Sequence[int], places: Sequence[int], rows: torch.Tensor, *, out: bool) -> None:
        count, regions = len(blocks), len(self.regions)
        programs, piece, warps = (max(1, count * regions), GATHER_WORDS, GATHER_WARPS) if out else READ
        # The last one so that it is never empty: what compiles at the start is called with no blocks.
        numbers = self._moved([*blocks, *places, 0])
        _move_words[(programs,)](
            self._table, numbers, rows, regions, self.words, count, OUT=out, PIECE=piece, num_warps=warps
        )


# Triton takes a parameter's annotation for its type, and names constants in capitals.
def _words(table, numbers, rows, regions, words, count, OUT: tl.constexpr, PIECE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803, PLR0917
    """A program to a block of a region at a time.

    ``table``: [4, regions], addresses, strides, places in a row, widths. ``numbers``: blocks, then their rows.
    """
    for item in range(tl.program_id(0), count * regions, tl.num_programs(0)):
        number, place = item % regions, item // regions
        width = tl.load(table + 3 * regions + number)
        block = tl.load(numbers + place) * tl.load(table + regions + number)
        inside = tl.load(table + number).to(tl.pointer_type(tl.int64)) + block
        outside = rows + tl.load(numbers + count + place) * words + tl.load(table + 2 * regions + number)
        for first in range(0, width, PIECE):
            at = first + tl.arange(0, PIECE)
            if OUT:
                tl.store(outside + at, tl.load(inside + at, mask=at < width), mask=at < width)
            else:
                tl.store(inside + at, tl.load(outside + at, mask=at < width), mask=at < width)


# A number of blocks must not make it compile anew.
_move_words = triton.jit(_words, do_not_specialize=["count"])
