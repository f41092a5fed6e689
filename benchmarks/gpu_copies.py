"""What a second tier's copies cost on a GPU: ``python benchmarks/gpu_copies.py [--blocks N]``.

Steps of a decode's shape (a CUDA graph that reads 8 GB of weights, small copies in, one out) run alone and beside
copies of an 8B model's blocks of 16 tokens. One JSON object a line: the step's time, the time that a worker's thread
spends on beginning copies, and what they reach in GB/s.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence

import torch

from agentkv.plugin.commands import Command
from agentkv.plugin.host import HostMemory

LAYERS, BLOCKS, WORDS = 32, 6000, 65536 // 8


class Steps:
    """A decode step's work, as a graph."""

    def __init__(self) -> None:
        device = torch.device("cuda")
        self.weights = [torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(60)]
        self.state = torch.randn(32, 8192, device=device, dtype=torch.bfloat16)
        self.inputs = [torch.zeros(8192, dtype=torch.int32, pin_memory=True) for _ in range(12)]
        self.taken = [torch.zeros(8192, dtype=torch.int32, device=device) for _ in range(12)]
        self.answer, self.sampled = torch.zeros(128, pin_memory=True), torch.zeros(128, device=device)
        self.graph, self.stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        self._forward()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self._forward()

    def _forward(self) -> None:
        state = self.state
        for weight in self.weights:
            state = torch.mm(state, weight)

    def run(self) -> None:
        """One step, to the end of its answer."""
        for target, source in zip(self.taken, self.inputs, strict=True):
            target.copy_(source, non_blocking=True)
        self.graph.replay()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.answer.copy_(self.sampled, non_blocking=True)
        self.stream.synchronize()


def slots_of(draw: random.Random, count: int, scattered: bool) -> list[int]:
    """Slots in one stretch, or with gaps."""
    if scattered:
        return sorted(draw.sample(range(0, BLOCKS, 2), count))
    start = draw.randrange(BLOCKS - count)
    return list(range(start, start + count))


def measure(
    steps: Steps, host: HostMemory, name: str, commands: Callable[[int], Sequence[Command]], turns: int = 60
) -> None:
    """Run ``turns`` steps, with copies begun before each unless four are under way."""
    times: list[float] = []
    begun: list[float] = []
    moved, under_way = 0, 0
    torch.cuda.synchronize()
    start = time.perf_counter()
    for turn in range(turns):
        wanted = commands(turn) if under_way < 4 else ()
        before = time.perf_counter()
        host.submit(wanted, ordered=False)
        between = time.perf_counter()
        steps.run()
        times.append(time.perf_counter() - between)
        begun.append(between - before)
        moved += sum(len(each.blocks) for each in wanted)
        under_way += len(wanted) - len(host.poll())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    host.poll()
    line = {"name": name, "step_ms": ends(times), "submit_ms": ends(begun)}
    print(json.dumps({**line, "gb_s": round(moved * host.bytes_per_block / 1e9 / seconds, 1)}), flush=True)


def ends(seconds: list[float]) -> dict[str, float]:
    """p50 and p95 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{share}": round(ordered[len(ordered) * share // 100] * 1e3, 2) for share in (50, 95)}


def main() -> None:
    """Measure each way alone, both, and both with slots in disorder and checksums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=270, help="to a copy (default: 270, a chain's own 4,300 tokens)")
    count = parser.parse_args().blocks
    draw, numbers = random.Random(0), iter(range(1 << 30))
    host = HostMemory([torch.zeros((BLOCKS, WORDS), dtype=torch.int64, device="cuda") for _ in range(LAYERS)], BLOCKS)
    steps = Steps()

    def copies(ways: Sequence[bool], *, scattered: bool = False, checked: int = 0) -> Callable[[int], list[Command]]:
        def commands(_: int) -> list[Command]:
            return [
                Command(
                    number=next(numbers),
                    out=out,
                    blocks=tuple(draw.sample(range(BLOCKS), count)),
                    slots=tuple(slots_of(draw, count, scattered)),
                    checked=tuple(range(checked)),
                )
                for out in ways
            ]

        return commands

    measure(steps, host, "warm-up", copies((True, False)))
    measure(steps, host, "no copies", lambda _: ())
    measure(steps, host, "out", copies((True,)))
    measure(steps, host, "in", copies((False,)))
    measure(steps, host, "both ways", copies((True, False)))
    measure(steps, host, "both ways, slots scattered", copies((True, False), scattered=True))
    measure(steps, host, "both ways, 3 checksums a copy", copies((True, False), checked=3))


if __name__ == "__main__":
    main()
