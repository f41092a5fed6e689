"""A worker's half of the second tier: host memory, and the copies between it and the pool."""

import math
import mmap
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from attrs import define
from vllm.logger import init_logger

from agentkv.plugin.commands import Command, Ended
from agentkv.plugin.rows import pool_rows

__all__ = ("HostMemory",)

logger = init_logger("agentkv.plugin")
#: Device memory for blocks on their way, in bytes, each way.
STAGING_BYTES = 1 << 28
FOLD = 64


@define
class _Copy:
    """A command under way. ``sums``: checksums of its places, on the host once ``ended`` has come to pass."""

    command: Command
    began: Any
    ended: Any
    sums: torch.Tensor | None
    failed: bool = False


class HostMemory:
    """Owns ``slots`` rows of host memory for blocks of the pool, whose ``regions`` are views [blocks, words].

    On a CUDA device the memory is pinned and each direction has a stream of its own: blocks are gathered from the
    layers into staging memory and go out in as few copies as their slots allow; a kernel reads them back. Elsewhere the
    same is done at once. ``submit`` and ``poll`` are called by the worker's one thread. A copy that goes wrong is
    reported as failed and never raised.
    """

    def __init__(self, regions: Sequence[torch.Tensor], slots: int) -> None:
        self._pool = pool_rows(regions)
        self._device, self.words = self._pool.device, self._pool.words
        self._cuda = self._device.type == "cuda"
        self.memory = _reserve(slots, self.words)
        if self._cuda:
            self._pin()
        rows = max(1, min(slots, STAGING_BYTES // (self.words * 8)))
        self._lanes = {out: _Lane(self._device, rows, self.words) for out in (True, False)}
        self._sums: dict[int, int] = {}
        fold = math.gcd(self.words, FOLD)
        self._weights = torch.arange(1, 2 * fold, 2, dtype=torch.int64, device=self._device)
        self._under_way: list[_Copy] = []

    @property
    def bytes_per_block(self) -> int:
        """What one block takes, all regions together."""
        return self.words * 8

    def submit(self, commands: Sequence[Command], *, ordered: bool) -> None:
        """Begin copies, in order. ``ordered``: loads, too, wait for what was queued on the device before."""
        for command in commands:
            try:
                self._under_way.append(self._begin(command, ordered))
            except Exception:  # here it would end the engine for all its clients
                logger.exception("agentkv: a copy of %d blocks failed", len(command.blocks))
                self._under_way.append(_Copy(command, None, self._behind(command), None, failed=True))

    def _behind(self, command: Command) -> "_Done | _Event":
        """A point behind whatever of a failed copy was queued: before it, its blocks and slots are nobody else's."""
        try:
            return self._lanes[command.out].mark()
        except Exception:  # noqa: BLE001 - the device itself is gone, and with it all that was queued
            return _Done()

    def poll(self) -> dict[int, Ended]:
        """The copies that have ended since the last call, by number."""
        ended: dict[int, Ended] = {}
        left: list[_Copy] = []
        for copy in self._under_way:
            if self._has_ended(copy):
                ended[copy.command.number] = self._finish(copy)
            else:
                left.append(copy)
        self._under_way = left
        return ended

    def _has_ended(self, copy: _Copy) -> bool:
        try:
            return bool(copy.ended.query())
        except Exception:  # an error of the device shows at whatever asks first
            logger.exception("agentkv: a copy of %d blocks failed", len(copy.command.blocks))
            copy.failed = True
            return True

    def _begin(self, command: Command, ordered: bool) -> _Copy:
        lane = self._lanes[command.out]
        with lane.use(after_compute=command.out or ordered):
            began = lane.mark()
            parts = [
                self._part(lane.staging, command, start) for start in range(0, len(command.blocks), len(lane.staging))
            ]
            sums = None
            if command.checked:
                # Pageable memory on either side would make the host wait for the device.
                sums = torch.empty(len(command.blocks), dtype=torch.int64, pin_memory=self._cuda)
                sums.copy_(torch.cat(parts), non_blocking=True)
            return _Copy(command, began, lane.mark(), sums)

    def _part(self, staging: torch.Tensor, command: Command, start: int) -> torch.Tensor:
        """Move as many blocks as staging memory holds, from place ``start`` on; their checksums."""
        slots = command.slots[start : start + len(staging)]
        rows = staging[: len(slots)]
        blocks = command.blocks[start : start + len(slots)]
        if not command.out:
            self._pool.load(blocks, self.memory, slots)
        if command.out or command.checked:
            self._pool.gather(blocks, rows)
        if command.out:
            for place, slot, length in _runs(slots):
                self.memory[slot : slot + length].copy_(rows[place : place + length], non_blocking=True)
        return self._checksums(rows) if command.checked else rows[:0, 0]

    def _checksums(self, rows: torch.Tensor) -> torch.Tensor:
        """A number to a row that changes with any word of it and, in all likelihood, with their order."""
        folded = rows.view(len(rows), -1, len(self._weights)).sum(1)
        return (folded * self._weights).sum(1)

    def _finish(self, copy: _Copy) -> Ended:
        command = copy.command
        if copy.failed:
            return Ended(failed=frozenset(range(len(command.blocks))))
        failed = []
        for place in command.checked if copy.sums is not None else ():
            value, slot = int(copy.sums[place]), command.slots[place]  # type: ignore[index]
            if command.out:
                self._sums[slot] = value
            elif self._sums.get(slot, value) != value:
                failed.append(place)
        return Ended(failed=frozenset(failed), seconds=copy.began.seconds_to(copy.ended))

    def _pin(self) -> None:
        from vllm.v1.simple_kv_offload.cuda_mem_ops import pin_tensor

        # torch's own pinned allocator rounds up to the next power of two.
        pin_tensor(self.memory)


class _Lane:
    """One direction's stream and staging memory; without CUDA the stream is the thread itself."""

    def __init__(self, device: torch.device, rows: int, words: int) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self.staging = torch.empty((rows, words), dtype=torch.int64, device=device)
        self._stream = torch.cuda.Stream(device) if self._cuda else None

    def use(self, *, after_compute: bool) -> AbstractContextManager[Any]:
        """What runs inside goes to the lane's stream; ``after_compute``: behind what was queued for the model."""
        if self._stream is None:
            return nullcontext()
        if after_compute:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        context: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return context

    def mark(self) -> "_Done | _Event":
        """A point in the lane's order of work."""
        return _Event(self._stream) if self._stream is not None else _Done()


class _Event:
    """A point in a CUDA stream."""

    def __init__(self, stream: Any) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record(stream)

    def query(self) -> bool:
        return bool(self.event.query())

    def seconds_to(self, later: "_Event") -> float:
        return float(self.event.elapsed_time(later.event)) / 1000


class _Done:
    """A point in a thread that does everything at once."""

    def __init__(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def seconds_to(self, later: "_Done") -> float:
        return later.at - self.at


def _reserve(slots: int, words: int) -> torch.Tensor:
    """Host memory of this shape. Raises ``OSError`` or ``MemoryError`` where there is not so much."""
    size = max(1, slots * words) * 8
    if size > sys.maxsize:
        raise MemoryError(f"{size} bytes are more than can be addressed")
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):
        # In pages of 2 MB, where the system has them, a pool of 64 GiB is written and pinned in a fraction of the time.
        area.madvise(mmap.MADV_HUGEPAGE)
    memory = torch.frombuffer(area, dtype=torch.int64)[: slots * words].view(slots, words)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(threads, len(os.sched_getaffinity(0))))
    try:
        # Written once, so that what there is not enough of is missed now.
        return memory.zero_()
    finally:
        torch.set_num_threads(threads)


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches of adjoining slots: place of the first one, the slot, how many."""
    start = 0
    for place in range(1, len(slots) + 1):
        if place == len(slots) or slots[place] != slots[place - 1] + 1:
            yield start, slots[start], place - start
            start = place
