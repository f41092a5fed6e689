"""Recordings with something wrong in them somewhere are read or refused in words."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import SetupError
from agentkv.trace import read_hashes, read_trajectories

CALLS = [{"id": "c1", "name": "look", "arguments": {"at": 1}}, {"id": "c2", "function": {"name": "look"}}]
TRAJECTORY = {
    "id": "one",
    "system": "Be kind.",
    "tools": [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}],
    "turns": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "content": "seen", "tool_call_id": "c1", "latency_s": 0.5},
        {"role": "tool", "content": [{"type": "text", "text": "seen"}], "tool_call_id": "c2"},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": "Thanks."},
    ],
}
REQUEST = {"t": 1.0, "in": 130, "out": 9, "hash_ids": [1, 2], "input_types": ["text"], "api_time": 2, "think_time": 0.5}
SPAWNED = {"t": 9.0, "agent_id": "a1", "duration_ms": 3000, "tool_tokens": 10, "requests": [{**REQUEST, "ttft": 0.1}]}
SESSION = {"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": [REQUEST, {**REQUEST, "t": 5}, SPAWNED]}
LOGGED = {"timestamp": 5, "input_length": 600, "output_length": 4, "hash_ids": [0, 1]}

odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "user", "tool", "assistant", "system", "c1", "c2", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "id", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list and object in a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@st.composite
def spoilt(draw: st.DrawFn, sound: Any) -> Any:
    """``sound`` with a value or two replaced, left out or said twice."""
    found = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, 2))):
        holder, key = draw(st.sampled_from(places(found)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[key] = draw(odd)
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd") / "odd.jsonl"


def refusal(path: Path, reader: Any, line: Any) -> str:
    path.write_text(json.dumps(line))
    try:
        list(reader(path))
    except SetupError as error:
        return str(error)
    return f"{path}, line 1: nothing is wrong"


many = settings(max_examples=400, deadline=None)


def test_they_are_sound_to_begin_with(path: Path) -> None:
    for reader, sound in ((read_trajectories, TRAJECTORY), (read_hashes, SESSION), (read_hashes, LOGGED)):
        assert refusal(path, reader, sound).endswith("nothing is wrong")


@many
@given(line=spoilt(TRAJECTORY))
def test_conversations(path: Path, line: Any) -> None:
    assert refusal(path, read_trajectories, line).startswith(f"{path}, line 1")


@many
@given(line=spoilt(SESSION))
def test_sessions(path: Path, line: Any) -> None:
    assert refusal(path, read_hashes, line).startswith(f"{path}, line 1")


@many
@given(line=spoilt(LOGGED))
def test_requests(path: Path, line: Any) -> None:
    assert refusal(path, read_hashes, line).startswith(f"{path}, line 1")
