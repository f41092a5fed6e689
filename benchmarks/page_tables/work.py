"""What figures are computed by: a mode of a benchmark, or a function; each once, however many tables show it."""

import argparse
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
from attrs import evolve, frozen

from agentkv.bench import run_benchmark
from agentkv.cli import bench
from agentkv.cli.bench_options import benchmark_of
from agentkv.config import EngineKV
from agentkv.engines import spec
from agentkv.kv import PolicySettings

__all__ = ("Bench", "Call", "Work")

BUNDLE = "{bundle}"
# Of a mode's result: what no table shows, and would be most of what is handed from process to process.
BULKY = ("steps", "timeline", "occupancy", "tier_occupancy", "quantiles_branch_ms", "quantiles_join_ms")


@frozen
class Bench:
    """One mode of ``agentkv bench COMMAND``; ``{bundle}`` in it is the folder that pack_traces.sh fills.

    What the command has no option for may differ: ``settings`` are fields of ``PolicySettings``, ``constants`` numbers
    in the code, by their full names.
    """

    command: str
    mode: str
    settings: tuple[tuple[str, float], ...] = ()
    constants: tuple[tuple[str, float], ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether it needs the bundle."""
        return BUNDLE in self.command

    def compute(self, bundle: Path | None) -> dict[str, Any]:
        """The mode's part of the result, as ``agentkv bench --json`` writes it."""
        parser = argparse.ArgumentParser()
        bench.add_options(parser)
        command = self.command.replace(BUNDLE, shlex.quote(f"{bundle}"))
        options = parser.parse_args([*shlex.split(command), "--modes", self.mode, "--floor-samples", "0"])
        with ExitStack() as changes:
            changes.enter_context(mock.patch.object(spec, "policy_settings", self._policy(spec.policy_settings)))
            for name, value in self.constants:
                changes.enter_context(mock.patch(name, value))
            result = anyio.run(run_benchmark, benchmark_of(options), _quiet)
        return {name: value for name, value in result["modes"][self.mode].items() if name not in BULKY}

    def _policy(self, own: Callable[[EngineKV | None], PolicySettings | None]) -> Callable[[EngineKV | None], Any]:
        def changed(kv: EngineKV | None) -> PolicySettings | None:
            given = own(kv)
            return None if given is None else evolve(given, **dict(self.settings))

        return changed


@frozen
class Call:
    """A function at the top of its module and its arguments; the bundle comes first where it is ``recorded``."""

    function: Callable[..., Mapping[str, Any]]
    arguments: tuple[Any, ...] = ()
    recorded: bool = False

    def compute(self, bundle: Path | None) -> Mapping[str, Any]:
        """What the function returns."""
        return self.function(*((bundle,) if self.recorded else ()), *self.arguments)


Work = Bench | Call


def _quiet(line: str) -> None:
    """Progress that nobody reads."""
