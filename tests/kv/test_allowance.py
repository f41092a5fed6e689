"""How much KV admitted runs may have together."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.kv import Admission, Directive, KVPolicy, Ticket
from agentkv.kv.allowance import SPARE, Allowance
from agentkv.kv.duty import Duty
from agentkv.kv.prefill_cost import PrefillCost

Seen = Callable[..., Duty]


def priced(token_seconds: float, steps: int = 40) -> PrefillCost:
    """Steps with prompts of 100 to 400 tokens."""
    cost, now = PrefillCost(), 0.0
    for number in range(steps):
        tokens = 100 * (1 + number % 4)
        cost.planned(number, [tokens], now)
        now += tokens * token_seconds
        cost.ended(number, now)
    return cost


def test_nothing_is_cheap_until_enough_was_seen_of_both(seen: Seen) -> None:
    assert Allowance(1000, block_size=16, duty=seen(work=1, wait=4)).slack == 0
    assert Allowance(1000, block_size=16, cost=priced(1e-4)).slack == 0
    assert Allowance(1000, block_size=16, duty=seen(work=1, wait=4, runs=3), cost=priced(1e-4)).slack == 0
    assert Allowance(1000, block_size=16, duty=seen(work=1, wait=4), cost=priced(1e-4, steps=3)).slack == 0


@pytest.mark.parametrize("work", [0.5, 50.0])
def test_slack_is_what_is_computed_again_in_a_share_of_the_time_that_runs_wait(work: float, seen: Seen) -> None:
    allowance = Allowance(6400, block_size=16, duty=seen(work=work, wait=4.0), cost=priced(1e-4))
    exact = SPARE * 4.0 / (1e-4 * 16)
    assert exact - 100 <= allowance.slack <= exact, "in grains of 100 blocks, whatever time requests take"


@pytest.mark.parametrize(("wait", "token_seconds"), [(0.02, 1e-4), (4.0, 0.05)])
def test_quick_tools_and_slow_engines_have_none(wait: float, token_seconds: float, seen: Seen) -> None:
    assert Allowance(1000, block_size=16, duty=seen(work=1.0, wait=wait), cost=priced(token_seconds)).slack == 0


def test_slack_is_at_most_another_pool(seen: Seen) -> None:
    assert Allowance(64, block_size=16, duty=seen(work=1.0, wait=600.0), cost=priced(1e-5)).slack == 64


def test_a_machine_that_computes_in_no_time_has_as_much_slack_as_there_may_be(seen: Seen) -> None:
    assert Allowance(64, block_size=16, duty=seen(work=1.0, wait=4.0), cost=priced(1e-310)).slack == 64


def test_requests_of_unknown_tickets_say_nothing_of_how_long_runs_wait(make_bench: Callable[..., Any]) -> None:
    policy = make_bench().policy
    ticket = policy.admit(run="r", blocks=10, ttl=1e9, now=0.0)
    for number in range(20):
        for name, step in (("forged", 600.0), (ticket.token, 5.0)):
            directive, at = Directive(run="r", ticket=name), number * step
            policy.start(directive, f"{name}-{number}", at)
            policy.abort(directive, f"{name}-{number}", at + 1.0)
    assert policy.admission.allowance.duty.wait == pytest.approx(4.0)


def admitted(allowance: Allowance, runs: int = 40) -> int:
    line = Admission(allowance)
    for number in range(runs):
        name = f"r{number}"
        line.declare(Ticket(token=name, serial=0, run=name, owner="", blocks=10, held=8, expires=1e9))
        line.admit(0.0)
    line.check_integrity()
    return sum(line.get(f"r{number}").state == "admitted" for number in range(runs))  # type: ignore[union-attr]


def test_more_runs_start_where_what_they_lose_is_cheap_as_far_as_those_at_work_fit(seen: Seen) -> None:
    cost, most = priced(1e-4), Allowance(100).held // 10
    assert admitted(Allowance(100, block_size=16, cost=cost)) == most
    waiting = Allowance(100, block_size=16, duty=seen(work=0.1, wait=0.4), cost=cost)
    assert 45 <= waiting.slack <= 50
    assert admitted(waiting) == 14
    busy = Allowance(100, block_size=16, duty=seen(work=4.6, wait=0.4), cost=cost)
    assert 45 <= busy.slack <= 50
    assert admitted(busy) == most, "those at work would not fit into the pool"


def test_a_run_is_paused_only_beyond_what_is_cheap(seen: Seen) -> None:
    for duty, paused in ((Duty(), ["young"]), (seen(work=0.2, wait=0.8), [])):
        line = Admission(Allowance(100, block_size=16, duty=duty, cost=priced(1e-4)))
        for name in ("old", "young"):
            line.declare(Ticket(token=name, serial=0, run=name, owner="", blocks=50, expires=1e9))
        assert len(line.admit(0.0)) == 2
        line.update("old", 70)
        assert [ticket.token for ticket in line.overload()] == paused


def test_what_a_paused_run_waits_in_line_is_no_work(make_bench: Callable[..., Any]) -> None:
    policy: KVPolicy = make_bench(20, kv_pool_ratio=1.0).policy
    old = policy.admit(run="old", blocks=10, ttl=9e9, now=0.0).token  # type: ignore[union-attr]
    young = policy.admit(run="young", blocks=10, ttl=9e9, now=0.0).token  # type: ignore[union-attr]
    directive, now = Directive(run="young", ticket=young), 0.0
    for number in range(20):
        policy.start(directive, f"{number}", now)
        policy.abort(directive, f"{number}", now + 1.0)
        now += 2.0
    share = policy.admission.allowance.duty.share
    policy.update(old, 30, now)
    policy.start(directive, "late", now)
    assert not policy.may_run(directive)
    policy.leave(old, now + 500.0)
    assert policy.may_run(directive)
    policy.abort(directive, "late", now + 501.0)
    assert policy.admission.allowance.duty.share == pytest.approx(share, abs=0.05)
