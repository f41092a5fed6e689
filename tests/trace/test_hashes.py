"""Block-hash traces: two published forms, and what is wrong with a file."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import SetupError
from agentkv.trace import Spawn, read_hashes, trace_kind

REQUEST = {"t": 2.0, "type": "n", "in": 130, "out": 9, "hash_ids": [1, 2], "api_time": 1.5, "think_time": 0.5}


def written(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def session(*requests: Any, block_size: int = 64) -> dict[str, Any]:
    return {"id": "trace_1", "block_size": block_size, "requests": list(requests)}


def test_a_session_has_its_requests_and_those_of_agents_it_spawned(tmp_path: Path) -> None:
    inner = {"t": 5.0, "type": "subagent", "agent_id": "a1", "requests": [{**REQUEST, "input_types": ["tool_result"]}]}
    path = written(tmp_path / "t.json", session({**REQUEST, "ttft": 0.2}, inner))
    parent, spawned = read_hashes(path)
    assert (parent.id, parent.block_size, parent.parent, len(parent.requests)) == ("trace_1", 64, None, 1)
    (asked,) = parent.requests
    assert (asked.at, asked.prompt, asked.output, asked.hashes) == (2.0, 130, 9, (1, 2))
    assert (asked.duration, asked.ttft, asked.think, asked.after_tool) == (1.5, 0.2, 0.5, None)
    assert (spawned.id, spawned.parent, spawned.requests[0].at) == ("trace_1/a1", "trace_1", 7.0)
    assert spawned.requests[0].after_tool is True


def test_an_agent_starts_when_it_did_and_not_when_it_was_logged(tmp_path: Path) -> None:
    spawned = {"type": "subagent", "agent_id": "a1", "duration_ms": 3000, "tool_tokens": 40, "system_tokens": 2}
    entries = [REQUEST, {**REQUEST, "t": 6.0}, {**spawned, "t": 7.5, "requests": [{**REQUEST, "t": 1.0}]}]
    path = written(tmp_path / "t.json", session(*entries, {**REQUEST, "t": 9.0}))
    parent, inner = read_hashes(path)
    # 4.5 s into the trace, 1 s behind the first answer, which took from 2.0 to 3.5 s.
    assert inner.requests[0].at == 5.5
    assert inner.spawn == Spawn(request=0, after=1.0)
    assert (parent.spawn, parent.anchor, inner.anchor) == (None, 0, 42)
    assert parent.scope == inner.scope == "trace_1"


def test_requests_without_sessions_stand_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    entry = {"timestamp": 3500, "input_length": 600, "output_length": 7, "hash_ids": [0, 4]}
    path.write_bytes(gzip.compress(json.dumps(entry).encode() + b"\n\n" + json.dumps(entry).encode()))
    assert trace_kind(path) == "request hashes"
    first, second = read_hashes(path)
    assert (first.id, second.id, first.block_size) == ("1", "3", 512)
    assert (first.requests[0].at, first.requests[0].hashes, first.requests[0].ttft) == (3.5, (0, 4), None)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (session(REQUEST, block_size=0), "line 1: field 'block_size' is 0"),
        (session({**REQUEST, "t": 10**400}), "request 0: field 't' is 1000"),
        (session({**REQUEST, "in": "many"}), "request 0: field 'in' is \"many\"; it must be a whole number"),
        (session({**REQUEST, "out": -1}), "field 'out' is -1"),
        (session({**REQUEST, "hash_ids": [1, "2"]}), "'hash_ids' must be a list of whole numbers"),
        (session({**REQUEST, "hash_ids": [1]}), "'hash_ids' has 1 entries; it must have one for each block of 64"),
        (session({**REQUEST, "in": 1 << 40}), "field 'in' is 1099511627776; it must be 0 to 16777216 tokens"),
        (session({**REQUEST, "api_time": -0.1}), "field 'api_time' is -0.1"),
        (session("text"), "request 0: must be an object"),
        ({"timestamp": 0, "input_length": 5, "hash_ids": []}, "field 'output_length' is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, entry: Any, message: str) -> None:
    with pytest.raises(SetupError, match=r"t\.json, line 1") as raised:
        list(read_hashes(written(tmp_path / "t.json", entry)))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"{", "not JSON"),
        (b"[1]", "list and no object"),
        (b'{"a": 1}', "is no trace that is known"),
        (b"\x1f\x8b damaged", "the file is damaged"),
        (b"\xff\xfe\x00", "not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=message):
        trace_kind(path)


def test_kinds_are_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    assert trace_kind(written(path, session(REQUEST))) == "session hashes"
    assert trace_kind(written(path, {"turns": []})) == "trajectories"
    path.write_bytes(b"SQLite format 3\0...")
    assert trace_kind(path) == "journal"
    with pytest.raises(SetupError, match="there is no file"):
        trace_kind(tmp_path / "missing")
