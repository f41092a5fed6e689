"""An option that would change nothing beside the others is refused, and one that counts is not."""

from pathlib import Path

import pytest

from agentkv.cli.main import main

from .mistakes import one_line

SEED = ("bench", "seed", "--engine", "sim:h200", "--chains", "2", "--floor-samples", "0", "--warm-up", "0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cap", "3"), "--cap is about modes with a limit (stock+cap), of which --modes stock has none: add"),
        (("--kv-pool-ratio", "0.85"), "--kv-pool-ratio is about modes with leases, of which --modes stock has none"),
        (
            ("--cpu-tier-bytes", "1GiB"),
            "--cpu-tier-bytes is about modes with a second tier, of which --modes stock has",
        ),
        (("--no-follower",), "--no-follower is about modes with a follower, of which --modes stock has none"),
        (("--no-leases",), "--no-leases is about modes with leases, of which --modes stock has none"),
        (("--no-admission",), "--no-admission is about modes with admission, of which --modes stock has none"),
        (
            ("--modes", "bidirectional", "--no-leases", "--kv-pool-ratio", "0.5"),
            "--kv-pool-ratio is about modes with leases, of which --modes bidirectional --no-leases has none: add",
        ),
        (("--bound-ms", "200"), "--bound-ms is the bound of a frontier: give --frontier N,N.., or leave it out"),
        (("--pool", "1", "--engine-option", "pool_blocks=9"), "--pool and --engine-option pool_blocks both say how"),
        (("--engine-option", "block_size=16"), "--engine-option block_size: say --block-size N"),
        (("--json", "x", "--html", "./x"), "--json and --html both write to 'x': name two files"),
        (
            ("--modes", "bidirectional+tier", "--cpu-tier-bytes", "1GiB", "--no-leases"),
            "--modes: 'bidirectional+tier' moves what is leased: it goes with leases alone; leave one of both out",
        ),
    ],
)
def test_an_option_without_effect_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(capsys, (*SEED, "--modes", "stock", *options), message)


@pytest.mark.parametrize(
    "options",
    [
        ("--modes", "stock,stock+cap", "--cap", "2"),
        ("--modes", "stock,bidirectional", "--kv-pool-ratio", "0.5", "--no-follower", "--no-admission"),
        ("--modes", "bidirectional", "--no-leases", "--no-admission"),
        ("--modes", "bidirectional+tier", "--cpu-tier-bytes", "1GiB"),
        ("--modes", "stock", "--engine-option", "pool_blocks=2000"),
        ("--modes", "stock", "--duration", "30", "--start-spread", "1", "--frontier", "2", "--bound-ms", "99"),
    ],
)
def test_what_counts_for_one_mode_is_taken(capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    assert main((*SEED, *options)) == 0
    assert "all agents done" in (said := capsys.readouterr().err) or "agents done in a window" in said


def test_a_scale_of_waits_that_are_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(Path(__file__).parents[1] / "data" / "trajectories" / "bfcl.jsonl")
    command = ("bench", "replay", "--engine", "sim", "--trace", trace, "--delay-scale", "0.5")
    one_line(
        capsys, command, "--delay-scale multiplies transplanted waits, of which there are none without --think-times"
    )
