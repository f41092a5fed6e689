"""Engines by name: ``vllm[:MODEL]`` and ``sim[:PRESET]``."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from agentkv.config import EngineKV
from agentkv.engines.base import Engine
from agentkv.errors import NotSupported, SetupError
from agentkv.kv import PolicySettings

__all__ = ("open_engine", "policy_settings")

FORMS = "'vllm', 'vllm:MODEL' (a folder or a hub name), 'sim' or 'sim:PRESET'"


def open_engine(
    spec: str | Engine,
    *,
    options: Mapping[str, Any] = MappingProxyType({}),
    kv: EngineKV | None = None,
    forcing: bool = False,
    script: Callable[..., Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Engine:
    """The engine that ``spec`` names, not started yet: enter it with ``async with``.

    An engine object is returned as it is. ``options`` go to the engine's constructor; ``script`` answers the
    requests of a simulated engine and of no other; without one its model makes up what it says. ``kv`` is how the
    engine is to manage its KV, None leaves it to its own devices; ``forcing`` makes it able to say given ids
    (``GenerateRequest.forced``), which a simulated one is anyway; ``progress`` gets lines while a real one starts.
    Raises ``SetupError`` for an unknown form, ``NotSupported`` for one that is not built.
    """
    if not isinstance(spec, str):
        asked = {**({} if kv is None else {"engine_kv": kv}), **({"forcing": True} if forcing else {})}
        return _given(spec, {**options, **asked}, script)
    kind, separator, rest = spec.partition(":")
    if kind in ("http", "https") and rest.startswith("//"):
        raise NotSupported(f"engine {spec!r}: servers over HTTP are not supported yet; use {FORMS}")
    if kind not in ("vllm", "sim") or (separator and not rest):
        raise SetupError(f"engine {spec!r} has none of the known forms: {FORMS}")
    if kind == "sim":
        return _simulated(rest, options, policy_settings(kv), script)
    if script is not None:
        raise SetupError(f"engine {spec!r} takes no script: scripts answer for the engine 'sim' only")
    from agentkv.engines.vllm import VLLMEngine

    return VLLMEngine(rest or None, options=options, kv=policy_settings(kv), forcing=forcing, progress=progress)


def policy_settings(kv: EngineKV | None) -> PolicySettings | None:
    """What the engine side is given of ``kv``, the user's own settings; None stays None."""
    if kv is None:
        return None
    return PolicySettings(
        kv_pool_ratio=kv.kv_pool_ratio,
        prefix_cache_mode=kv.prefix_cache_mode,
        admission=kv.admission,
        peak_ratio=kv.peak_ratio,
        max_queued=kv.max_queued,
        cpu_tier_bytes=kv.cpu_tier_bytes,
        tier_verify=kv.tier_verify,
        strict=kv.strict,
    )


def _given(engine: Engine, options: Mapping[str, Any], script: object) -> Engine:
    # Looked up on the class: `info` of an engine that is not started raises.
    if not callable(getattr(type(engine), "generate", None)):
        raise SetupError(f"engine {engine!r} is neither an engine nor a spec: {FORMS}")
    if names := [*options, *(() if script is None else ("script",))]:
        raise SetupError(f"engine {engine!r} is made already: give {', '.join(names)} where it is made")
    return engine


def _simulated(
    preset: str, options: Mapping[str, Any], kv: PolicySettings | None, script: Callable[..., Any] | None
) -> Engine:
    # Here, since most programs that import agentkv simulate nothing.
    from agentkv.engines.made_up import AutoModel
    from agentkv.engines.sim import SimEngine

    arguments = {**options, "preset": preset} if preset else dict(options)
    return SimEngine(script or AutoModel(), **arguments, kv=kv)
