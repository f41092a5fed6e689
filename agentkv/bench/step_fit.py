"""What a machine's steps take, fitted to those of a measured run.

Where the host launches a step while the one before it runs (asynchronous scheduling), it hands out that one's tokens
only when it is done with the launch. Prompt tokens are launched kernel by kernel, which may take longer than the step
before: then the wait shows in that one's time, and the step with the prompt seems to take next to nothing. In numbers,
with ``before`` for the GPU's time of the step before, ``own`` for that of a step with prompt tokens and ``host`` for
its launch, tokens come ``host`` after the last ones, and then ``before + own - host`` later.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import evolve

from agentkv.bench.step_log import COLUMNS, StepRow
from agentkv.engines.sim_machine import StepCost
from agentkv.errors import SetupError
from agentkv.kv import LeastSquares

__all__ = ("fit_steps", "read_steps", "wait_for_step")

# Seconds a step, a sequence, a launch, a token prefilled, a token of context, a pair of tokens in a prefill: what a
# coefficient is taken for where nothing tells it, and how far off that may be.
GUESSES = (0.01, 0.0005, 0.002, 0.0001, 0.0, 0.0)
RANGES = (0.1, 0.01, 0.02, 0.005, 1e-6, 1e-6)
# Steps that took so many times what the model says, or so small a part of it, were held up by something else, or are
# no steps; they are left out of a second fit.
OUTLIER = 2.0
# Which steps are left out depends on the fit, and the fit on them.
ROUNDS = 8
# So many steps that were held up, of each one with prompt tokens, are no chance.
HELD = 0.25
# A step that took so many times what a launch does was not held up by one alone.
CLEARLY = 1.5


def read_steps(mode: Mapping[str, Any]) -> list[StepRow]:
    """The steps of one mode of a result. Raises ``SetupError`` where it has none."""
    steps = mode.get("steps")
    if not steps or not steps["rows"] or tuple(steps["columns"]) != COLUMNS:
        raise SetupError("the result has no steps to fit from: measure it again with this version of agentkv bench")
    return [StepRow(*row) for row in steps["rows"]]


def fit_steps(rows: Sequence[StepRow], *, asynchronous: bool = False) -> StepCost:
    """The cost model that explains ``rows`` best, by relative errors; ``asynchronous``: steps are launched ahead."""
    decodes = [row for row in rows if not row.prefill_tokens]
    prefills = [row for row in rows if row.prefill_tokens]
    if asynchronous and decodes and prefills:
        cost = _fit_decodes(decodes)
        held = [row.seconds for row in decodes if row.seconds > OUTLIER * cost.seconds(row)]
        if len(held) >= HELD * len(prefills):
            return _fit_prefills(prefills, evolve(cost, prefill_host_s=median(held)))
    return _fit(_usual(rows, _fit(rows)) or rows)


def wait_for_step(rows: Sequence[StepRow]) -> float:
    """How long half of those wait at most who come at any time while steps run, until the next one can take them in."""
    lengths = sorted(row.seconds for row in rows)
    # Who comes within x of a step's end waits at most x: half of all time, where no step is counted for more than x.
    whole, short = sum(lengths), 0.0
    for place, seconds in enumerate(lengths):
        longer = len(lengths) - place
        if short + longer * seconds >= whole / 2:
            return (whole / 2 - short) / longer
        short += seconds
    return 0.0


def _fit(rows: Iterable[StepRow]) -> StepCost:
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


def _usual(rows: Iterable[StepRow], cost: StepCost) -> list[StepRow]:
    """Those that took about what ``cost`` says."""
    return [row for row in rows if 1 / OUTLIER < row.seconds / cost.seconds(row) < OUTLIER]


def _fit_decodes(rows: Sequence[StepRow]) -> StepCost:
    """The cost of steps without prompt tokens, of which many were held up or seem short."""
    # Short ones count most by relative errors, so a fit to all would follow those that are no steps.
    typical = max(median(row.seconds for row in rows), 1e-6)
    usual = _usual(rows, StepCost(base_s=typical, prefill_token_s=0.0)) or rows
    for _ in range(ROUNDS):
        usual = _usual(rows, _fit(usual)) or usual
    return evolve(_fit(usual), prefill_token_s=0.0, prefill_launch_s=0.0)


def _fit_prefills(rows: Iterable[StepRow], cost: StepCost) -> StepCost:
    """``cost`` with that of prompt tokens, from steps that the GPU kept longer than the host."""
    # Of a step without a decode it is not seen when the one before ended.
    mixed = [row for row in rows if row.decode_seqs]
    host, decode = cost.prefill_host_s, cost
    told = [row for row in mixed if row.seconds > CLEARLY * host] or mixed
    for _ in range(ROUNDS):
        fit = LeastSquares((GUESSES[3], GUESSES[5]), (RANGES[3], RANGES[5]))
        for row in told:
            # What was decoded in the step before is taken to be what was decoded in this one.
            if (own := row.seconds + host - 2 * decode.seconds(row)) > 0:
                fit.add((row.prefill_tokens, row.prefill_context), own)
        token, pair = fit.solve()
        cost = evolve(cost, prefill_token_s=token, prefill_context_s=pair)
        told = [row for row in mixed if _tells(row, decode.seconds(row), cost)] or told
    return cost


def _tells(row: StepRow, before: float, cost: StepCost) -> bool:
    """Whether the GPU made the step as long as it was: not its own launch, nor that of the next one."""
    took = before + cost.seconds(row) - cost.prefill_host_s
    return (
        took > before
        and 1 / OUTLIER < row.seconds / took < OUTLIER
        and abs(row.seconds - took) < abs(row.seconds - cost.prefill_host_s)
    )
