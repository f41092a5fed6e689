"""Engines: what computes tokens, and the contract that the runtime holds them to."""

from agentkv.engines.base import (
    Clock,
    Delta,
    Engine,
    EngineInfo,
    GenerateRequest,
    PrefillRequest,
    Receipt,
    Sampling,
    Usage,
)
from agentkv.engines.spec import open_engine

__all__ = (
    "Clock",
    "Delta",
    "Engine",
    "EngineInfo",
    "GenerateRequest",
    "PrefillRequest",
    "Receipt",
    "Sampling",
    "Usage",
    "open_engine",
)
