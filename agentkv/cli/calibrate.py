"""``agentkv bench calibrate``: a simulated machine from a measured run."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from agentkv.bench.calibrate import compare, fit_machine, read_measured, write_preset
from agentkv.errors import SetupError

__all__ = ("add_calibrate",)

WITHIN = 0.2


def add_calibrate(workloads: Any) -> None:
    """Declare the subcommand."""
    parser = workloads.add_parser(
        "calibrate",
        help="fit the simulator to a measured run",
        description="Fits the simulator's cost model to one result of 'bench seed --json' and holds it against others.",
    )
    parser.add_argument("result", metavar="RESULT.json", type=Path, help="the run that is fitted")
    parser.add_argument("--judge", metavar="RESULT.json", type=Path, nargs="+", default=[], help="runs to compare with")
    parser.add_argument("--preset", metavar="FILE.json", type=Path, required=True, help="write it there; use sim:FILE")
    parser.set_defaults(command=_command)


def _command(options: argparse.Namespace) -> int:
    if options.preset.suffix != ".json" or not options.preset.resolve().parent.is_dir():
        raise SetupError(f"--preset {str(options.preset)!r} must be a file that ends in .json, in a folder that exists")
    fitted, *others = (read_measured(path) for path in [options.result, *options.judge])
    machine = fit_machine(fitted)
    write_preset(options.preset, machine, fitted)
    cost = machine.cost
    print(
        f"step: {cost.base_s * 1e3:.3f} ms, {cost.decode_seq_s * 1e3:.4f} ms a sequence, "
        f"{cost.prefill_launch_s * 1e3:.3f} ms with prefill in it, "
        f"{cost.prefill_host_s * 1e3:.3f} ms of the host to launch that, "
        f"{cost.prefill_token_s * 1e6:.2f} us a prompt token, "
        f"{cost.context_token_s * 1e9:.2f} ns a token of context, {cost.prefill_context_s * 1e9:.3f} ns a pair; "
        f"delivery {machine.delivery_s * 1e3:.2f} ms"
    )
    print(_line("run", "TTFT after tool p50", "simulated", "error", "p95", "simulated", "error"))
    for measured in (fitted, *others):
        row = anyio.run(partial(compare, options.preset, measured, lambda _: None))
        cells = [cell for percent in ("p50", "p95") for cell in _cells(row[percent])]
        print(_line(measured.name if measured is not fitted else f"{measured.name} (fitted)", *cells))
    return 0


def _cells(found: dict[str, float]) -> tuple[str, str, str]:
    mark = "" if abs(found["error"]) <= WITHIN else " !"
    return f"{found['measured']:,.1f}", f"{found['simulated']:,.1f}", f"{found['error']:+.1%}{mark}"


def _line(name: str, *cells: str) -> str:
    return name.ljust(34) + "".join(cell.rjust(21 if at == 0 else 12) for at, cell in enumerate(cells))
