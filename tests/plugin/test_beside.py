"""The second tier's connector beside another one, under vLLM's ``MultiConnector``."""

from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiKVConnectorWorkerMetadata

from agentkv.plugin.commands import Ended, TierReport

Make = Callable[..., Any]


def test_the_tier_is_in_force_beside_a_connector_of_vllms(make_core: Make) -> None:
    core = make_core(tier_blocks=40, beside=("ExampleConnector",))
    assert core.call("info")["capabilities"]["tier"] == "on"
    core.scheduler.kv.policy.tier.cost.latency = 0.0
    going: list[Any] = []
    core.on_step.append(lambda step: going.extend(step.kv_connector_metadata.metadata[0].commands))

    def report() -> Any:
        ended = {command.number: Ended(seconds=0.001) for command in going}
        going.clear()
        return MultiKVConnectorWorkerMetadata((TierReport(ended), None)) if ended else None

    core.report = report
    chain = list(range(100, 140))
    token = core.one(chain, run="a", ttl=60.0)["lease"]
    assert core.call("demote", tokens=[token])["reasons"] == [None]
    core.run()
    assert core.call("stats")["tier_away"] == 10
    core.one(list(range(200, 440)))
    answer = core.one([*chain, 1], run="a", lease=token, resume=True, ttl=60.0)
    assert answer["cached"] == 40
    assert core.call("stats")["tier_totals"]["fetched"] == 10
    assert core.scheduler.kv.errors == {}
