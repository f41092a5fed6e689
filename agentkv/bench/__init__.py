"""What KV-aware execution is worth: the same agents on one engine in several modes."""

from agentkv.bench.chat import find_chat
from agentkv.bench.delay import Delay
from agentkv.bench.delay_scaling import DelayScaling
from agentkv.bench.fanout import SHAPES, FanoutShape
from agentkv.bench.frontier import DEFAULT_BOUND_MS
from agentkv.bench.hashes import Hashes, choose_sessions
from agentkv.bench.modes import DEFAULT_POOL_RATIO, MODES, SWITCHES, ModeConfig, find_modes
from agentkv.bench.page import frontier_picture, page, require_plotting
from agentkv.bench.predictors import judge_predictors, predictor_lines
from agentkv.bench.replay import Replay, choose_stories
from agentkv.bench.runner import Benchmark, run_benchmark
from agentkv.bench.seed import SeedShape
from agentkv.bench.story import Teller
from agentkv.bench.table import table_lines
from agentkv.bench.waiting_times import WaitingTimes, read_think_times
from agentkv.bench.workload import Workload

__all__ = (
    "DEFAULT_BOUND_MS",
    "DEFAULT_POOL_RATIO",
    "MODES",
    "SHAPES",
    "SWITCHES",
    "Benchmark",
    "Delay",
    "DelayScaling",
    "FanoutShape",
    "Hashes",
    "ModeConfig",
    "Replay",
    "SeedShape",
    "Teller",
    "WaitingTimes",
    "Workload",
    "choose_sessions",
    "choose_stories",
    "find_chat",
    "find_modes",
    "frontier_picture",
    "judge_predictors",
    "page",
    "predictor_lines",
    "read_think_times",
    "require_plotting",
    "run_benchmark",
    "table_lines",
)
