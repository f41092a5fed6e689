"""Resetting the prefix cache while the second tier moves blocks."""

from collections.abc import Callable
from typing import Any

from agentkv.plugin.commands import Ended, TierReport

Make = Callable[..., Any]


class Slow:
    """Workers whose copies end when the test says so."""

    def __init__(self, core: Any) -> None:
        self.going: list[Any] = []
        self._ended: dict[int, Ended] = {}
        core.on_step.append(lambda step: self.going.extend(step.kv_connector_metadata.commands))
        core.report = self._report

    def end_all(self) -> None:
        self._ended |= {command.number: Ended(seconds=0.001) for command in self.going}
        self.going.clear()

    def _report(self) -> TierReport | None:
        ended, self._ended = self._ended, {}
        return TierReport(ended) if ended else None


def steps(core: Any) -> None:
    for _ in range(3):
        core.step()


def test_a_load_under_way_does_not_stand_against_a_reset_and_is_not_found_by_it(make_core: Make) -> None:
    core = make_core(tier_blocks=40)
    core.scheduler.kv.policy.tier.cost.latency = 0.0
    workers, chain = Slow(core), list(range(100, 140))
    token = core.one(chain, run="a", ttl=60.0)["lease"]
    assert core.call("demote", tokens=[token])["reasons"] == [None]
    steps(core)
    workers.end_all()
    steps(core)
    assert core.call("stats")["tier_away"] == 10
    # Nothing of it is in the pool any more, so that it has to be loaded.
    core.one(list(range(200, 440)))
    assert core.call("promote", tokens=[token])["reasons"] == [None]
    steps(core)
    assert core.free < 63, "blocks are being written"
    answer = core.call("reset")
    assert (answer["leases_dropped"], answer["done"], answer["reason"]) == (1, True, None)
    assert core.free < 63, "they are nobody else's before they have been"
    assert core.scheduler.reset_prefix_cache(reset_running_requests=True)
    workers.end_all()
    steps(core)
    assert core.free == 63
    assert core.one([*chain, 1])["cached"] == 0
    assert core.scheduler.kv.errors == {}


def test_a_reset_that_requests_stand_against_says_so(make_core: Make) -> None:
    core = make_core(tier_blocks=40)
    core.add(list(range(40)), max_tokens=50, run="a")
    core.step()
    answer = core.call("reset")
    assert answer["done"] is False
    assert answer["reason"].startswith("10 blocks are in use by requests"), answer
    core.run()
    core.drain()
    assert core.call("reset")["done"] is True
