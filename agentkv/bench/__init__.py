"""What KV-aware execution is worth: the same agents on one engine in several modes."""

from agentkv.bench.delay import Delay
from agentkv.bench.modes import DEFAULT_POOL_RATIO, MODES, ModeConfig, find_modes
from agentkv.bench.page import page, require_plotting
from agentkv.bench.runner import Benchmark, run_benchmark
from agentkv.bench.seed import SeedShape
from agentkv.bench.table import table_lines
from agentkv.bench.workload import Workload

__all__ = (
    "DEFAULT_POOL_RATIO",
    "MODES",
    "Benchmark",
    "Delay",
    "ModeConfig",
    "SeedShape",
    "Workload",
    "find_modes",
    "page",
    "require_plotting",
    "run_benchmark",
    "table_lines",
)
