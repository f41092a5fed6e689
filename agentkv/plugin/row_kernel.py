"""The rows of a pool by one Triton kernel: a launch to a copy, where torch needs two to a layer.

What the launches take is the time of the worker's one thread, which the model's next step waits for
(``benchmarks/gpu_copies.py`` measures it).
"""

from collections.abc import Sequence

import torch
import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]

from agentkv.plugin.rows import PoolRows

__all__ = ("KernelRows",)

PIECE = 1024


class KernelRows(PoolRows):
    """``PoolRows`` whose regions lie on a CUDA device. Compiles what it needs when it is made."""

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
        for out in (True, False):
            self._launch((), nowhere, out=out)

    def gather(self, blocks: Sequence[int], rows: torch.Tensor) -> None:
        """As ``PoolRows``."""
        self._launch(blocks, rows, out=True)

    def scatter(self, blocks: Sequence[int], rows: torch.Tensor) -> None:
        """As ``PoolRows``."""
        self._launch(blocks, rows, out=False)

    def _launch(self, blocks: Sequence[int], rows: torch.Tensor, *, out: bool) -> None:
        items = len(blocks) * len(self.regions)
        _move[(max(1, items),)](
            self._table, self._moved(blocks or (0,)), rows, len(self.regions), self.words, items, OUT=out, PIECE=PIECE
        )


# Triton reads a parameter's annotation as its type, and names constants in capitals.
def _move_words(table, blocks, rows, regions, words, items, OUT: tl.constexpr, PIECE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803, PLR0917
    """One program to a block of a region. ``table``: [4, regions], addresses, strides, places in a row, widths."""
    item = tl.program_id(0)
    if item < items:
        number, place = item % regions, item // regions
        width = tl.load(table + 3 * regions + number)
        block = tl.load(blocks + place) * tl.load(table + regions + number)
        inside = tl.load(table + number).to(tl.pointer_type(tl.int64)) + block
        outside = rows + place.to(tl.int64) * words + tl.load(table + 2 * regions + number)
        for first in range(0, width, PIECE):
            at = first + tl.arange(0, PIECE)
            if OUT:
                tl.store(outside + at, tl.load(inside + at, mask=at < width), mask=at < width)
            else:
                tl.store(inside + at, tl.load(outside + at, mask=at < width), mask=at < width)


# Their values must not make it compile anew.
_move = triton.jit(_move_words, do_not_specialize=["items"])
