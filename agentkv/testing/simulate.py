"""The simulated engine with a script."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from agentkv.config import EngineKV
from agentkv.engines.clock import VirtualClock
from agentkv.engines.made_up import AutoModel
from agentkv.engines.sim import SimEngine
from agentkv.engines.sim_machine import MachineOptions
from agentkv.engines.sim_output import Responder
from agentkv.engines.spec import policy_settings
from agentkv.errors import ScriptError
from agentkv.testing.script import Script
from agentkv.testing.turns import ScriptedTurn

__all__ = ("responder", "sim")


def sim(
    script: Responder | Sequence[ScriptedTurn] | Mapping[str, Sequence[ScriptedTurn]] | None = None,
    *,
    preset: str = "cpu",
    stream_interval: int = 1,
    clock: VirtualClock | None = None,
    engine_kv: EngineKV | None = None,
    **options: Unpack[MachineOptions],
) -> SimEngine:
    """A ``SimEngine`` whose model follows ``script``, or makes up valid output (``AutoModel``) without one.

    ``script`` is a ``Script``, its list of turns, ``replay(...)`` or any other responder; ``engine_kv`` is how the
    engine is to manage its KV (None: as vLLM does by itself); the rest goes to the engine. Raises ``ScriptError`` for
    a string, ``EngineStartError`` as the engine does.
    """
    if isinstance(script, str):
        raise ScriptError(f"sim({script!r}): a script is a list of turns; a preset is given as preset={script!r}")
    return SimEngine(
        responder(script),
        preset=preset,
        stream_interval=stream_interval,
        clock=clock,
        kv=policy_settings(engine_kv),
        **options,
    )


def responder(script: Responder | Sequence[ScriptedTurn] | Mapping[str, Sequence[ScriptedTurn]] | None) -> Responder:
    """What answers the requests of a simulated engine: ``script`` in any form that ``sim`` takes.

    Raises ``ScriptError`` for anything else.
    """
    if script is None:
        return AutoModel()
    if callable(script):
        return script
    if isinstance(script, str) or not isinstance(script, Sequence | Mapping):
        raise ScriptError(
            f"script={script!r} is no script; give a list of turns, a dict of lists by branch, or a Script"
        )
    return Script(script)
