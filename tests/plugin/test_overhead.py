from collections.abc import Callable
from statistics import median
from time import thread_time
from typing import Any

STEPS, ROUNDS = 10_000, 50


def test_without_directives_a_step_costs_at_most_a_twentieth_more_than_stock(
    make_core: Callable[..., Any],
) -> None:
    cores = {stock: make_core(stock=stock, blocks=400, sequences=8) for stock in (True, False)}
    spent: dict[bool, list[float]] = {True: [], False: []}
    for n in range(ROUNDS):
        # Interleaved, and each first in turn, so that neither has the quieter machine.
        for stock in (True, False) if n % 2 else (False, True):
            spent[stock].append(_seconds_in_schedule(cores[stock], STEPS // ROUNDS, n))
    ratio = median(agent / stock for agent, stock in zip(spent[False], spent[True], strict=True))
    assert ratio <= 1.05, f"schedule() takes {ratio:.3f} times stock's"


def _seconds_in_schedule(core: Any, steps: int, seed: int) -> float:
    seconds = 0.0
    for n in range(steps):
        if n % 5 == 0 and len(core.scheduler.requests) < 12:
            core.add([(seed + n + i) % 900 for i in range(40)], max_tokens=30)
        while len(core.steps) >= core.depth:
            core.answer()
        start = thread_time()
        step = core.scheduler.schedule()
        seconds += thread_time() - start
        core.steps.append(step)
        core.masks.append({})
    core.run()
    core.outputs.clear()
    return seconds
