"""What KV-aware execution is worth: the same agents on one engine in several modes."""

from agentkv.bench.delay import Delay
from agentkv.bench.modes import MODES, ModeConfig, find_modes
from agentkv.bench.runner import SeedBench, run_seed
from agentkv.bench.table import table_lines
from agentkv.bench.workload import SeedShape

__all__ = ("MODES", "Delay", "ModeConfig", "SeedBench", "SeedShape", "find_modes", "run_seed", "table_lines")
