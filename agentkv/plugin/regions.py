"""The KV cache as rows of bytes: one row to a block, whatever the attention backend makes of what is in it."""

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

import torch

from agentkv.errors import NotSupported

__all__ = ("regions",)

WORD = torch.int64


def regions(caches: Iterable[torch.Tensor], num_blocks: int) -> list[torch.Tensor]:
    """Views of shape [num_blocks, words], 8 bytes a word, that together hold all of each block once.

    ``caches`` are the layers' tensors; layers that share memory count once. A dimension that lies outside of the
    blocks (keys and values apart) makes a view of its own. Raises ``NotSupported`` where a block is not whole words
    in one piece.
    """
    found: dict[tuple[int, int], torch.Tensor] = {}
    for cache in caches:
        for view in _rows(cache, num_blocks):
            found.setdefault((view.untyped_storage().data_ptr(), view.storage_offset()), view)
    return list(found.values())


def _rows(cache: torch.Tensor, num_blocks: int) -> Iterator[torch.Tensor]:
    dim = next((d for d in (0, 1) if d < cache.ndim and cache.shape[d] % num_blocks == 0), None)
    if dim is None:
        raise NotSupported(f"a KV cache of shape {tuple(cache.shape)} is not one of {num_blocks} blocks")
    step = cache.stride(dim) * (cache.shape[dim] // num_blocks)
    dims = [(cache.shape[d], cache.stride(d)) for d in range(cache.ndim) if d != dim]
    dims.append((cache.shape[dim] // num_blocks, cache.stride(dim)))
    outer = [(size, stride) for size, stride in dims if size > 1 and stride >= step]
    row = _dense([(size, stride) for size, stride in dims if size > 1 and stride < step])
    size = cache.element_size()
    if row is None or row * size % WORD.itemsize or step * size % WORD.itemsize:
        raise NotSupported(f"the blocks of a KV cache with strides {cache.stride()} are not whole words in one piece")
    for places in product(*(range(size) for size, _ in outer)):
        offset = cache.storage_offset() + sum(at * stride for at, (_, stride) in zip(places, outer, strict=True))
        if offset * size % WORD.itemsize:
            raise NotSupported("a KV cache does not begin at a whole word")
        yield torch.empty(0, dtype=WORD, device=cache.device).set_(
            cache.untyped_storage(),
            offset * size // WORD.itemsize,
            (num_blocks, row * size // WORD.itemsize),
            (step * size // WORD.itemsize, 1),
        )


def _dense(dims: list[tuple[int, int]]) -> int | None:
    """Elements in one piece that dimensions (size, stride) cover, in whatever order; None if there are holes."""
    expected = 1
    for size, stride in sorted(dims, key=lambda each: each[1]):
        if stride != expected:
            return None
        expected *= size
    assert expected == prod(size for size, _ in dims)
    return expected
