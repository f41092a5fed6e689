"""Subprocess output as a stream of text."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from agentkv.errors import ToolError, ToolFailed
from agentkv.stream import process
from agentkv.stream.process import _signal


def python(program: str) -> list[str]:
    return [sys.executable, "-u", "-c", program]


async def read(*args: Any, **options: Any) -> str:
    return "".join([text async for text in process(*args, **options)])


async def test_it_yields_while_the_process_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = f"import os, time\nprint('one')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('two')"
    seen: list[str] = []
    async for text in process(python(program)):
        seen.append(text)
        go.touch()  # without the first piece in hand the second would never come
    assert "".join(seen) == "one\ntwo\n"
    assert len(seen) >= 2


async def test_arguments_are_no_shell_s(tmp_path: Path) -> None:
    written = await read([*python("import sys; print(sys.argv[1:])"), "$HOME; echo hi", tmp_path])
    assert written == f"['$HOME; echo hi', {str(tmp_path)!r}]\n"


async def test_errors_are_in_it_and_bytes_that_are_no_text_are_replaced() -> None:
    program = "import sys; sys.stderr.buffer.write(b'caf\\xc3\\xa9 \\xff'); sys.exit(3)"
    with pytest.raises(ToolFailed, match=r"^python\S* ended with exit status 3$"):
        await read(python(program))
    assert await read(python(program), check=False) == "café \ufffd"


async def test_a_character_in_two_pieces_is_one() -> None:
    program = (
        "import sys, time; out = sys.stdout.buffer\n"
        "for byte in 'é'.encode(): out.write(bytes([byte])); out.flush(); time.sleep(0.05)"
    )
    assert await read(python(program)) == "é"


async def test_it_does_not_wait_for_what_a_process_leaves_behind() -> None:
    left = "import time; time.sleep(600)"
    program = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {left!r}]).pid)"
    with anyio.fail_after(20):
        pid = int(await read(python(program)))
        await anyio.to_thread.run_sync(_until_gone, pid)


async def test_a_reader_that_is_slow_gets_all_that_the_process_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[process.__module__], "GRACE", 0.1)
    got = 0
    async for text in process(python("print('x' * 250_000, end='')")):
        got += len(text)
        await anyio.sleep(0.2)
    assert got == 250_000


async def test_what_is_left_behind_and_writes_on_is_not_heard_for_ever() -> None:
    with anyio.fail_after(20):
        assert "y" in await read(["sh", "-c", "yes & echo"])


async def test_a_process_that_writes_without_end_is_ended() -> None:
    with anyio.fail_after(20), pytest.raises(ToolFailed, match=r"^yes wrote more than 100000 bytes$"):
        await read(["yes"], most_bytes=100_000)


@pytest.mark.parametrize(("encoding", "written"), [("utf-16", "abc"), ("punycode", "a-\\377")])
async def test_output_that_its_encoding_cannot_read_is_named(encoding: str, written: str) -> None:
    with pytest.raises(ToolError, match=rf"^stream\.process\(encoding='{encoding}'\) cannot read what printf writes: "):
        await read(["printf", written], encoding=encoding)


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_cancelled_process_ends_with_all_that_it_started(tmp_path: Path, ignores: bool) -> None:
    handler = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if ignores else ""
    child = f"import os, signal, time; {handler} print(os.getpid(), flush=True); time.sleep(600)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    pids: list[int] = []
    with anyio.fail_after(30):
        stream = process(python(program), env={**os.environ})
        async for text in stream:
            pids.append(int(text))
            break
        await stream.aclose()
        await anyio.to_thread.run_sync(_until_gone, pids[0])


async def test_a_cancelled_process_is_not_waited_for_until_a_daemon_of_its_own_session_ends() -> None:
    daemon = "import time; time.sleep(600)"
    popen = f"subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session=True)"
    stream = process(python(f"import subprocess, sys, time; print({popen}.pid); time.sleep(600)"))
    pid = int(await anext(stream))
    try:
        with anyio.fail_after(1.5):
            await stream.aclose()
    finally:
        os.kill(pid, 9)  # it has left the group, and outlives it


def _until_gone(pid: int) -> None:
    state = Path(f"/proc/{pid}/stat")
    while state.exists() and " Z " not in state.read_text():
        time.sleep(0.01)


@pytest.mark.parametrize("argv", ["git log", b"git", [], ["no-such-program-here"], ["git", 3], ["a\0b"], 5, None])
async def test_what_cannot_be_run_is_named(argv: Any) -> None:
    with pytest.raises(ToolError, match=r"^stream\.process\(\) (takes a list|cannot run) "):
        await read(argv)


async def test_a_number_that_is_another_process_s_by_now_is_left_alone() -> None:
    async with await anyio.open_process(python("input()"), start_new_session=True) as other:
        _signal(SimpleNamespace(pid=other.pid, returncode=0), 9)  # type: ignore[arg-type]  # one that was reaped
        assert other.stdin is not None
        await other.stdin.send(b"\n")
        assert await other.wait() == 0


@pytest.mark.parametrize("encoding", ["no-such-encoding", "hex", "rot13", "idna", "", 5])
async def test_an_encoding_that_is_none_of_text_is_refused_before_anything_runs(tmp_path: Path, encoding: str) -> None:
    made = tmp_path / "made"
    with pytest.raises(ToolError, match=r"encoding=.* must name an encoding of text"):
        async for _ in process(["touch", str(made)], encoding=encoding):
            pass
    assert not made.exists()
