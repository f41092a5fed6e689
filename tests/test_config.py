"""What users and operators set: a wrong value or type is a ``SetupError`` that names the field."""

from typing import Any

import pytest

import agentkv as akv
from agentkv.engines.spec import policy_settings
from agentkv.kv import PolicySettings


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (akv.Limits, {"tokens": 1.5}, r"Limits.tokens=1.5 must be a whole number of at least 1"),
        (akv.Limits, {"steps": 0}, r"Limits.steps=0 must be a whole number of at least 1"),
        (akv.Limits, {"steps": True}, r"Limits.steps=True must be"),
        (akv.Limits, {"tool_calls": -1}, r"Limits.tool_calls=-1 must be a whole number of at least 0"),
        (akv.Limits, {"seconds": "60"}, r"Limits.seconds='60' must be a number above 0"),
        (akv.Limits, {"seconds": 0}, r"Limits.seconds=0 must be a number above 0"),
        (akv.KVConfig, {"kv_transfer_mode": "both"}, r"KVConfig.kv_transfer_mode='both' must be one of 'auto', 'off'"),
        (akv.KVConfig, {"prefetch_step": "256"}, r"KVConfig.prefetch_step='256' must be a whole number"),
        (akv.KVConfig, {"anchor_ttl": 3601}, r"KVConfig.anchor_ttl=3601 must be a number above 0 and at most 3600"),
        (akv.KVConfig, {"anchor_ttl": float("nan")}, r"KVConfig.anchor_ttl=nan must be"),
        (akv.KVConfig, {"branch_prefetch_limit": None}, r"KVConfig.branch_prefetch_limit=None must be"),
        (akv.KVConfig, {"transfer_sync_level": 3}, r"KVConfig.transfer_sync_level=3 must be one of 0, 1, 2"),
        (akv.KVConfig, {"transfer_sync_level": True}, r"KVConfig.transfer_sync_level=True must be"),
        (akv.EngineKV, {"kv_pool_ratio": 1.01}, r"EngineKV.kv_pool_ratio=1.01 must be a number above 0 and at most 1"),
        (akv.EngineKV, {"kv_pool_ratio": "0.9"}, r"EngineKV.kv_pool_ratio='0.9' must be"),
        (akv.EngineKV, {"prefix_cache_mode": "lru"}, r"EngineKV.prefix_cache_mode='lru' must be one of 'hybrid'"),
        (akv.EngineKV, {"admission": []}, r"EngineKV.admission=\[\] must be one of 'auto', 'none'"),
        (akv.EngineKV, {"strict": 1}, r"EngineKV.strict=1 must be True or False"),
    ],
)
def test_a_value_out_of_bounds_is_named(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(akv.SetupError, match=message):
        kind(**fields)


def test_bounds_themselves_are_within() -> None:
    limits = akv.Limits(steps=1, tool_calls=0, tokens=1, seconds=1)
    assert (limits.steps, limits.seconds) == (1, 1)
    assert akv.KVConfig(anchor_ttl=3600, branch_prefetch_limit=0).anchor_ttl == 3600
    assert akv.EngineKV(kv_pool_ratio=1).kv_pool_ratio == 1


def test_the_engine_side_has_the_defaults_that_users_are_told() -> None:
    assert policy_settings(akv.EngineKV()) == PolicySettings()
