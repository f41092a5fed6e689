"""Files of recorded work that are damaged, or are something else."""

import gzip
import json
from pathlib import Path

import pytest

from agentkv.errors import SetupError
from agentkv.trace import read_lines, read_trajectories, trace_file

LINE = json.dumps({"id": "one", "turns": [{"role": "user", "content": "word " * 500}]}).encode() + b"\n"


def test_plain_and_compressed_are_read_alike_and_empty_lines_counted(tmp_path: Path) -> None:
    content = LINE + b"\n" + LINE
    for name, written in (("a", content), ("b", gzip.compress(content))):
        (tmp_path / name).write_bytes(written)
        assert [line.number for line in read_lines(tmp_path / name)] == [1, 3]


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, kept: float) -> None:
    packed = gzip.compress(b"".join(LINE.replace(b"one", str(n).encode()) for n in range(200)))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(packed[: int(len(packed) * kept)])
    with pytest.raises(SetupError, match=r"cut\.jsonl\.gz, behind line \d+: .*the file is damaged, fetch it anew"):
        list(read_lines(path))


def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINE * 50))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "bad.gz"
    path.write_bytes(packed)
    with pytest.raises(SetupError, match="bad"):
        list(read_lines(path))


def test_the_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(LINE + b"{'id': 1}\n" + LINE)
    with pytest.raises(SetupError, match=r"t\.jsonl, line 2: not JSON .*give one JSON object a line"):
        list(read_lines(path))


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "long.gz"
    packed = gzip.compress(b"{" + b"a" * (8 << 20))
    path.write_bytes(packed)
    assert len(packed) < 1 << 16
    with pytest.raises(SetupError, match="line 1: longer than 1 MiB"):
        list(read_lines(path))


@pytest.mark.parametrize("field", ["id", "turns"])
def test_what_is_missing_is_named(tmp_path: Path, field: str) -> None:
    turns = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Gone."}]
    fields = {"id": "one", "turns": turns}
    del fields[field]
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(fields))
    with pytest.raises(SetupError, match=f"line 1: field '{field}' is missing; it must be"):
        list(read_trajectories(path))


def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read"):
        list(read_lines(tmp_path))
