"""What a machine's steps take, fitted to those of a measured run."""

from collections.abc import Mapping
from typing import Any

from agentkv.bench.step_log import COLUMNS, StepRow
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import SetupError
from agentkv.kv import LeastSquares

__all__ = ("fit_steps", "read_steps")

# Seconds a step, a sequence, a launch, a token prefilled, a token of context, a pair of tokens in a prefill: what a
# coefficient is taken for where nothing tells it, and how far off that may be.
GUESSES = (0.01, 0.0005, 0.002, 0.0001, 0.0, 0.0)
RANGES = (0.1, 0.01, 0.02, 0.005, 1e-6, 1e-6)
# Steps that took so many times what the model says, or so small a part of it, were held up by something else, or are
# no steps; they are left out of a second fit.
OUTLIER = 2.0


def read_steps(mode: Mapping[str, Any]) -> list[StepRow]:
    """The steps of one mode of a result. Raises ``SetupError`` where it has none."""
    steps = mode.get("steps")
    if not steps or not steps["rows"] or tuple(steps["columns"]) != COLUMNS:
        raise SetupError("the result has no steps to fit from: measure it again with this version of agentkv bench")
    return [StepRow(*row) for row in steps["rows"]]


def fit_steps(rows: list[StepRow]) -> StepCost:
    """The cost model that explains ``rows`` best, by relative errors."""
    first = _fit(rows)
    usual = [row for row in rows if 1 / OUTLIER < row.seconds / first.seconds(row) < OUTLIER]
    return _fit(usual or rows)


def _fit(rows: list[StepRow]) -> StepCost:
    fit = LeastSquares(GUESSES, RANGES)
    for row in rows:
        if row.seconds > 0:
            launch = 1 if row.prefill_tokens else 0
            work = (row.decode_seqs, launch, row.prefill_tokens, row.context_tokens, row.prefill_context)
            fit.add((1, *work), row.seconds)
    base, seq, launch_s, token, context, pair = fit.solve()
    return StepCost(
        base_s=max(base, 1e-6),
        decode_seq_s=seq,
        prefill_launch_s=launch_s,
        prefill_token_s=token,
        context_token_s=context,
        prefill_context_s=pair,
    )
