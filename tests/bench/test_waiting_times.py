"""Where a replay's waits come from."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentkv.bench import Delay, DelayScaling, WaitingTimes, read_think_times
from agentkv.errors import SetupError

MADE_UP: dict[str, Any] = {"tool": Delay("uniform", 1, 1), "user": Delay("uniform", 2, 2)}


def sessions(path: Path, *kinds: tuple[str, float]) -> Path:
    requests = [
        {"t": at, "in": 10, "out": 1, "hash_ids": [], "input_types": [kind], "think_time": think}
        for at, (kind, think) in enumerate([("text", 0.0), *kinds])
    ]
    path.write_text(json.dumps({"id": "s", "block_size": 64, "requests": requests}))
    return path


def test_what_was_recorded_comes_first(tmp_path: Path) -> None:
    think = read_think_times([sessions(tmp_path / "a.json", ("tool_result", 8.0), ("text", 50.0))])
    times = WaitingTimes(**MADE_UP, think=think, scaling=DelayScaling(cap=20))
    rng = Random(1)
    assert times.of_tool(0.25, rng) == (0.25, "recorded")
    assert times.of_tool(99.0, rng) == (20, "recorded")
    assert times.of_tool(None, rng) == (8.0, "transplanted")
    assert times.of_user(rng) == (20, "transplanted")


def test_without_anything_known_it_is_made_up() -> None:
    times = WaitingTimes(**MADE_UP)
    assert times.of_tool(None, Random(1)) == (1, "drawn")
    assert times.of_user(Random(1)) == (2, "drawn")


def test_the_first_request_of_a_session_waits_for_nobody(tmp_path: Path) -> None:
    think = read_think_times([sessions(tmp_path / "a.json", ("tool_result", 8.0), ("tool_result", 4.0), ("text", 9.0))])
    assert (think.tool, think.user) == ((8.0, 4.0), (9.0,))


def test_sessions_that_say_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"--think-times: .*give more sessions"):
        read_think_times([sessions(tmp_path / "a.json", ("tool_result", 8.0))])


def test_only_what_is_transplanted_is_scaled(tmp_path: Path) -> None:
    think = read_think_times([sessions(tmp_path / "a.json", ("tool_result", 8.0), ("text", 50.0))])
    times = WaitingTimes(**MADE_UP, think=think, scaling=DelayScaling(scale=0.25, cap=3))
    assert times.of_tool(2.0, Random(1)) == (2.0, "recorded")
    assert times.of_tool(None, Random(1)) == (2.0, "transplanted")
    assert times.of_user(Random(1)) == (3, "transplanted")
    assert (times.scaling.factor, times.scaling.bound) == (" × 0.25", ", none above 3 s")


@pytest.mark.parametrize(
    ("wrong", "message"), [({"cap": -1}, "--delay-cap -1"), ({"scale": float("inf")}, "scale inf")]
)
def test_paces_out_of_bounds_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        DelayScaling(**wrong)
