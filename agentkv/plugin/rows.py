"""Blocks of the pool as rows of words: gathered from the layers' regions, and loaded into them from host memory."""

from collections.abc import Iterator, Sequence

import torch

__all__ = ("PoolRows", "pool_rows")


class PoolRows:
    """The ``regions`` of a pool, views [blocks, words]; a block's row is all of them side by side.

    Both calls only queue the work on the current stream, where there is one.
    """

    def __init__(self, regions: Sequence[torch.Tensor]) -> None:
        self.regions = list(regions)
        self.device = self.regions[0].device
        self.spans = list(_spans(self.regions))
        self.words: int = self.spans[-1].stop

    def gather(self, blocks: Sequence[int], rows: torch.Tensor) -> None:
        """Write the row of each of ``blocks`` to its place in ``rows``, [blocks, words]."""
        index = self._moved(blocks)
        for region, span in zip(self.regions, self.spans, strict=True):
            rows[:, span] = region.index_select(0, index)

    def load(self, blocks: Sequence[int], memory: torch.Tensor, slots: Sequence[int]) -> None:
        """Write the rows ``slots`` of ``memory``, [slots, words] on the host, to ``blocks``, one each."""
        index, places = self._moved(blocks), self._moved(slots)
        for region, span in zip(self.regions, self.spans, strict=True):
            # Not all rows at once: memory for a hundred megabytes of them would be new at each load.
            region.index_copy_(0, index, memory[:, span].index_select(0, places))

    def _moved(self, numbers: Sequence[int]) -> torch.Tensor:
        """Numbers on the device; from pageable memory the host would wait for it."""
        here = torch.tensor(numbers, dtype=torch.int64, pin_memory=self.device.type == "cuda")
        return here.to(self.device, non_blocking=True)


def pool_rows(regions: Sequence[torch.Tensor]) -> PoolRows:
    """On a CUDA device one kernel does it for all regions; elsewhere torch, by a call to a region."""
    if regions[0].device.type != "cuda":
        return PoolRows(regions)
    from agentkv.plugin.row_kernel import KernelRows

    return KernelRows(regions)


def _spans(regions: Sequence[torch.Tensor]) -> Iterator[slice]:
    start = 0
    for region in regions:
        yield slice(start, start + region.shape[1])
        start += region.shape[1]
