"""Runs without a model: scripted and made-up generations on the simulated engine, replays, assertions."""

from agentkv.engines.made_up import AutoModel
from agentkv.engines.sim_output import ScriptedOutput
from agentkv.testing.prefix import assert_prefix_stable
from agentkv.testing.recording import Recording
from agentkv.testing.replay import replay
from agentkv.testing.script import Script
from agentkv.testing.simulate import sim
from agentkv.testing.turns import ScriptedTurn, call, calls, label, say

__all__ = (
    "AutoModel",
    "Recording",
    "Script",
    "ScriptedOutput",
    "ScriptedTurn",
    "assert_prefix_stable",
    "call",
    "calls",
    "label",
    "replay",
    "say",
    "sim",
)
