"""Remembered results on disk."""

from pathlib import Path

import pytest

from agentkv.errors import StoreError
from agentkv.follow import Memo
from agentkv.store.memo_file import kept_memos, read_memos, write_memos
from agentkv.tools import ToolCall


def filled() -> Memo:
    memo = Memo(10_000)
    memo.remember(ToolCall("", "read", '{"b":1,"a":"é"}').key, "text \ufffd")
    memo.remember(ToolCall("", "status", "{}").key, "pending")
    return memo


def test_what_is_written_is_read_again_and_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "memo.json"
    write_memos(path, {("", "a"): filled(), ("tenant", "a"): Memo(10)})
    assert path.stat().st_mode & 0o777 == 0o600
    read = read_memos(path, 10_000)
    assert {name: list(memo.items()) for name, memo in read.items()} == {
        ("", "a"): list(filled().items()),
        ("tenant", "a"): [],
    }
    write_memos(path, {})
    assert read_memos(path, 10_000) == {}
    assert [each.name for each in tmp_path.iterdir()] == ["memo.json"]


def test_a_smaller_memo_takes_what_fits(tmp_path: Path) -> None:
    path = tmp_path / "memo.json"
    write_memos(path, {("", "a"): filled()})
    [memo] = read_memos(path, 16).values()
    assert [key[0] for key, _ in memo.items()] == ["status"]


def test_no_file_is_an_empty_memo(tmp_path: Path) -> None:
    assert read_memos(tmp_path / "none.json", 10) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "agentkv.memo/2", "memos": []}',
        '{"schema": "agentkv.memo/1", "memos": [{}]}',
        '{"schema": "agentkv.memo/1", "memos": [{"owner": "", "agent": "", "results": [["a", 1, "b"]]}]}',
        "\x80",
        "[" * 100_000,
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "memo.json"
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(StoreError, match="is no memo file"):
        read_memos(path, 10)
    assert path.read_text(encoding="latin-1") == text


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memo.json"
    write_memos(path, {})
    path.chmod(0o640)
    with pytest.raises(StoreError, match="chmod 600 it"):
        read_memos(path, 10)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"memo file '.*none/memo\.json' cannot be written"):
        write_memos(tmp_path / "none" / "memo.json", {})
    with pytest.raises(StoreError, match="cannot be read"):
        read_memos(tmp_path, 10)


def vanish(folder: Path, error: Exception | None) -> None:
    with kept_memos(folder / "memo.json", 10):
        folder.rmdir()
        if error is not None:
            raise error


def test_what_the_body_raises_is_not_hidden_by_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(RuntimeError, match="the body") as raised:
        vanish(folder, RuntimeError("the body"))
    assert "cannot be written" in raised.value.__notes__[0]
    folder.mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        vanish(folder, None)
