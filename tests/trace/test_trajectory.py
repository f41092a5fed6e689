"""Recorded conversations: what is kept of them, and what is wrong with a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import SetupError
from agentkv.trace import Trajectory, find_files, read_trajectories

RECORDED = Path(__file__).parents[1] / "data" / "trajectories"
CALL = {"id": "c1", "name": "look", "arguments": {"at": 1}}
ASKED = {"role": "user", "content": "Look."}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "content": "seen", "tool_call_id": "c1", "latency_s": 0.5}


def read(tmp_path: Path, *turns: Any, **fields: Any) -> list[Trajectory]:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "one", "turns": turns, **fields}) + "\n")
    return list(read_trajectories(path))


def test_a_conversation_ends_with_the_assistants_last_turn(tmp_path: Path) -> None:
    (found,) = read(tmp_path, ASKED, CALLED, ANSWERED, {"role": "assistant", "content": "Done."}, ASKED, system="Be.")
    assert (found.id, found.system) == ("one", "Be.")
    assert [message.role for message in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.messages[2].name == "look"
    assert found.latencies == (None, None, 0.5, None)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_conversations_are_read(path: Path) -> None:
    found = list(read_trajectories(path))
    assert found
    assert all(trajectory.messages[-1].role == "assistant" for trajectory in found)


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ((), "no turn is the assistant's"),
        ((CALLED,), "turn 0: the assistant speaks first"),
        ((ASKED, CALLED, ASKED, CALLED), "before call 'c1' has its result"),
        ((ASKED, ANSWERED, CALLED), "turn 1: a result for call 'c1'"),
        ((ASKED, CALLED, {**ANSWERED, "latency_s": -1}, CALLED), "field 'latency_s' is -1; it must be at least 0"),
        ((ASKED, CALLED, {**ANSWERED, "latency_s": 10**400}, CALLED), "a time in seconds"),
        ((ASKED, "text"), "turn 1: must be an object"),
    ],
)
def test_an_order_that_cannot_be_is_named(tmp_path: Path, turns: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        read(tmp_path, *turns)


def test_folders_stand_for_their_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "notes.md"):
        (tmp_path / name).write_text("")
    assert [path.name for path in find_files([tmp_path], (".jsonl",))] == ["a.jsonl", "b.jsonl"]
    with pytest.raises(SetupError, match="no such file or folder"):
        find_files([tmp_path / "c"], (".jsonl",))
    with pytest.raises(SetupError, match=r"no file that ends in \.gz"):
        find_files([tmp_path], (".gz",))
