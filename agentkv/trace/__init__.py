"""Recorded workloads that others publish: what is in the files, read and checked."""

from agentkv.trace.hashes import HashRequest, HashSession, Spawn, read_hashes
from agentkv.trace.kind import TraceKind, trace_kind
from agentkv.trace.trace_file import Line, find_files, read_lines
from agentkv.trace.trajectory import Trajectory, read_trajectories

__all__ = (
    "HashRequest",
    "HashSession",
    "Line",
    "Spawn",
    "TraceKind",
    "Trajectory",
    "find_files",
    "read_hashes",
    "read_lines",
    "read_trajectories",
    "trace_kind",
)
