"""Where an engine's own configuration has the settings of the KV policy."""

from collections.abc import Mapping
from typing import Any

from agentkv.errors import NotSupported
from agentkv.kv import PolicySettings

__all__ = ("settings_of",)


def settings_of(vllm_config: Any) -> PolicySettings:
    """The settings in ``additional_config["agentkv"]``, defaults for those that are not there.

    Raises ``NotSupported`` for a name that is not known, a value out of bounds, and what is no object.
    """
    given = vllm_config.additional_config
    wire = given.get("agentkv") if isinstance(given, Mapping) else None
    if not isinstance(wire, Mapping | None):
        raise NotSupported(f"additional_config: 'agentkv' is {wire!r}; it must be an object of engine KV settings")
    return PolicySettings.from_wire(wire or {})
