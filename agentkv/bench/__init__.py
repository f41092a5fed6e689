"""What KV-aware execution is worth: the same agents on one engine in several modes."""

from agentkv.bench.delay import Delay
from agentkv.bench.modes import MODES, ModeConfig, find_modes
from agentkv.bench.runner import Benchmark, run_benchmark
from agentkv.bench.seed import SeedShape
from agentkv.bench.table import table_lines

__all__ = ("MODES", "Benchmark", "Delay", "ModeConfig", "SeedShape", "find_modes", "run_benchmark", "table_lines")
