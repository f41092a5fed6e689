"""A number that cannot be: one line that names its option, whatever knows of the mistake."""

import argparse
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkv.bench import Delay
from agentkv.bench.sweep import Grid
from agentkv.cli.main import main
from agentkv.cli.option_names import naming_options
from agentkv.errors import EngineStartError, SetupError

TRACES = str(Path(__file__).parents[1] / "data" / "trajectories")
BENCH = ("--engine", "sim:h200", "--modes", "stock,stock+cap,bidirectional+tier", "--cpu-tier-bytes", "1GiB")
DRAWN = ("--chains", "--prompt-tokens", "--shared-tokens")
SEED = (*DRAWN, "--history-turns", "--tool-calls", "--result-pieces", "--output-tokens", "--block-size", "--warm-up")
FANOUT = (*DRAWN, "--plan-tokens", "--branches", "--branch-tokens", "--join-tokens")
WHOLE = {
    ("bench", "seed", *BENCH): (*SEED, "--cap", "--repeat", "--floor-samples"),
    ("bench", "fanout", *BENCH): FANOUT,
    ("bench", "replay", *BENCH, "--trace", TRACES): ("--chains", "--min-tokens", "--max-tokens"),
    ("bench", "sweep"): ("--chains", "--result-tokens", "--result-pieces", "--seeds", "--tool-calls", "--block-size"),
}
REAL = {
    ("bench", "seed", *BENCH): ("--start-spread", "--pool", "--bound-ms", "--kv-pool-ratio", "--duration"),
    ("bench", "seed", *BENCH, "--duration", "9"): ("--settle-seconds",),
    ("bench", "fanout", *BENCH): ("--start-spread",),
    ("bench", "replay", *BENCH, "--trace", TRACES): ("--start-spread", "--delay-cap"),
}
RANGES = {
    ("bench", "seed", *BENCH): ("--result-tokens", "--tool-seconds"),
    ("bench", "fanout", *BENCH): ("--output-tokens",),
    ("bench", "replay", *BENCH, "--trace", TRACES): ("--tool-seconds", "--user-seconds"),
    ("bench", "sweep"): ("--tool-seconds",),
}
# What a trace has is the bound of these, and any number of tokens may be the most.
BOUNDLESS = {"--cap", "--min-tokens", "--max-tokens", "--repeat", "--floor-samples", "--warm-up"}
HUGE = str(10**20)


def wrong() -> Iterator[tuple[tuple[str, ...], str, str]]:
    for command, flags in WHOLE.items():
        yield from ((command, flag, "-1") for flag in flags)
        yield from ((command, flag, HUGE) for flag in flags if flag not in BOUNDLESS and "replay" not in command)
    for command, flags in REAL.items():
        yield from itertools.product([command], flags, ["-1", "nan"])
    for command, flags in RANGES.items():
        yield from itertools.product([command], flags, ["9:2", "-1:2", "1:inf", "some", "1:2:3"])


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    *progress, line = err.splitlines()
    assert out == ""
    assert all(" " in said and "agentkv" not in said for said in progress)
    assert line.startswith("agentkv: ")
    return line


@pytest.mark.parametrize(("command", "flag", "value"), [*wrong()])
def test_the_option_is_named(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], flag: str, value: str
) -> None:
    line = one_line(capsys, *command, f"{flag}={value}")
    assert flag in line
    assert not re.search(r"[a-z]=", line)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--prompt-tokens", "1000"),
            "--prompt-tokens 1000 must be at least 2040: --shared-tokens 2000, and one for each of --history-turns 40",
        ),
        (
            ("--result-pieces", "400"),
            "--result-pieces 400 is more than --result-tokens 300:300 may be; each piece needs a token: have at most",
        ),
        (
            ("--pool", "0.001"),
            "--pool 0.001 of the working set is 22 blocks, but the longest chain alone needs",
        ),
        (
            ("--prompt-tokens", "1000000"),
            "the workload, whose longest chain has 1,002,976 tokens: have shorter",
        ),
        (
            ("--tool-seconds", "1:2e9"),
            "'1:2e9' is out of bounds: LO is at least 0, HI at least LO and at most 1e+09 s",
        ),
        (("--settle-seconds", "0"), "--settle-seconds: a steady load has a duration; give --duration SECONDS"),
        (
            ("--duration", "60", "--frontier", "4,4"),
            "--frontier: a number of agents is listed twice; --repeat",
        ),
        (
            ("--duration", "60", "--frontier", "4", "--tool-calls", "0"),
            "--frontier: it bounds TTFT after a tool",
        ),
        (("--modes", "stock,stock"), "--modes: 'stock' is listed twice; once is enough"),
        (("--kv-pool-ratio", "0.5,0.5"), "--kv-pool-ratio: give one ratio, or several different ones"),
    ],
)
def test_numbers_that_do_not_go_together_name_all_of_them(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert message in one_line(capsys, "bench", "seed", *BENCH, *options)


def test_fields_that_are_no_option_stay_as_they_are_and_so_does_the_class() -> None:
    options = argparse.Namespace(block_size=1, pool=2)
    with pytest.raises(EngineStartError) as caught, naming_options(options, block="block_size"):
        raise EngineStartError("pool: block=0 and max_num_seqs=3 of pool_blocks=4, where x='pool=1'")
    assert str(caught.value) == "--pool: --block-size 0 and max_num_seqs=3 of pool_blocks=4, where x='pool=1'"


@pytest.mark.parametrize("path", ["/runs/seed=4/block_size=3", "seed=4/block_size=3", "block_size=3", "by-seed=4"])
def test_a_path_stays_as_it_was_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"'{path}'" in one_line(capsys, "advise", path)
    assert f"preset '{path}.json'" in one_line(capsys, "bench", "seed", "--engine", f"sim:{path}.json")
    if "/" in path:
        assert f"--trace: {path}: no such" in one_line(capsys, "bench", "hashes", "--trace", path)


def test_a_sweep_without_tools_or_with_a_point_that_cannot_be_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--tool-calls 0 must be at least 1: what is compared" in one_line(
        capsys, "bench", "sweep", "--tool-calls=2,0"
    )
    with pytest.raises(SetupError, match="prompt_tokens=4 must be at least 5"):
        Grid(prompt_tokens=[500, 4], tool_calls=[1], tool_seconds=[Delay.parse("1:2")])
